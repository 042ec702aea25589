/*
 * topotune's tuner plugin for NCCL 2.21 and later: a plan's table of algorithms, protocols and channels.
 *
 * Theory of operation. NCCL loads the library that NCCL_TUNER_PLUGIN names, takes the newest of the symbols
 * ncclTunerPlugin_v2 ... _v6 that it knows, and calls init once for each communicator. init reads the table and
 * keeps the rows for communicators of this many ranks and nodes; from then on they are only read, so that any
 * number of threads may call getCollInfo. Before each collective NCCL passes its estimates, a contiguous
 * float[numAlgo][numProto] of microseconds behind a pointer that is declared as float **, in which -1 stands for
 * what it cannot or must not run. Where a row of the plan holds the message, the estimate of the row's cell is
 * set to 0, which makes it NCCL's choice, and the row's channels are set. Nothing else is ever touched: not a cell
 * that is -1, not a collective, size or communicator that the table does not name.
 *
 * Whatever goes wrong, a table that is missing, cut off or broken included, is told to NCCL's log, and NCCL
 * goes on with its own choice. No call returns an error: NCCL would end the communicator over it.
 *
 * The table is the file TOPOTUNE_NCCL_TABLE (empty: none), else it stands beside this library, with .table
 * in place of .so. Its form, one item a line, fields apart by one space, lines of at most 255 bytes:
 *
 *     topotune-nccl-table 1
 *     plan WORDS                        for the log: what it was measured with
 *     # COMMENT                         anywhere after the first line
 *     row COLLECTIVE RANKS NODES FROM TO ALGO PROTO CHANNELS
 *                                       FROM <= bytes < TO (or inf); CHANNELS 0: as many as NCCL takes itself.
 *                                       Rows of one collective, RANKS and NODES ascend and do not overlap
 *     constant NAME INDEX... VALUE      of NCCL's model (ABI v5 and later); see `constants` below
 *     end COUNT                         of rows and constants: a table that was cut off is not taken
 *
 * The structs say what NCCL's binary interface is (nccl/src/include/plugin/tuner, 2.30); nothing of NCCL's is
 * needed to build it: cc -O2 -fPIC -shared -fvisibility=hidden nccl_tuner.c -o libnccl-tuner-topotune.so -ldl
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* What NCCL's interface is made of. */

typedef int result; /* ncclResult_t; 0 is success, and nothing else is returned here */
typedef void (*logger)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);

enum { LOG_WARN = 2, LOG_INFO = 3 };
enum { SUBSYSTEM_TUNING = 0x40 };
enum { NUM_COLLECTIVES = 5, NUM_ALGOS = 7, NUM_PROTOS = 3, NUM_LINKS = 3, NUM_GENERATIONS = 4, NUM_SCALES = 3 };
enum { TREE = 0, RING = 1, LL = 0, SIMPLE = 2 };

struct domain_info {
  int num_domains, min_ranks, max_ranks;
};

struct model_constants { /* latencies in microseconds, bandwidths in GB/s */
  double base_latency[NUM_ALGOS][NUM_PROTOS];
  double hw_latency[NUM_LINKS][NUM_ALGOS][NUM_PROTOS];
  double ll_max[NUM_GENERATIONS][NUM_SCALES];
  double ring_ll128[NUM_GENERATIONS][NUM_SCALES];
  double tree_ll128[NUM_GENERATIONS][NUM_SCALES];
  double tree[NUM_GENERATIONS][NUM_SCALES];
  double nvls_tree[NUM_GENERATIONS][NUM_SCALES];
};

struct tuner_v2 {
  const char *name;
  result (*init)(size_t ranks, size_t nodes, logger log, void **context);
  result (*get_coll_info)(void *context, int collective, size_t bytes, int collnet, int nvls, int pipe_ops,
                          int *algo, int *proto, int *channels);
  result (*destroy)(void *context);
};

struct tuner_v3 {
  const char *name;
  result (*init)(size_t ranks, size_t nodes, logger log, void **context);
  result (*get_coll_info)(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int num_algos,
                          int num_protos, int *channels);
  result (*destroy)(void *context);
};

struct tuner_v4 {
  const char *name;
  result (*init)(size_t ranks, size_t nodes, logger log, void **context);
  result (*get_coll_info)(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int num_algos,
                          int num_protos, int registered, int *channels);
  result (*destroy)(void *context);
};

struct tuner_v5 {
  const char *name;
  result (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger log,
                 struct domain_info *domains, struct model_constants *constants);
  result (*get_coll_info)(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int num_algos,
                          int num_protos, int registered, int *channels);
  result (*finalize)(void *context);
};

struct tuner_v6 {
  const char *name;
  result (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger log,
                 struct domain_info *domains, struct model_constants *constants);
  result (*get_coll_info)(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int num_algos,
                          int num_protos, int registered, int *channels);
  result (*finalize)(void *context);
  result (*get_chunk_size)(void *context, int collective, size_t bytes, int algo, int proto, int channels,
                           size_t *chunk_bytes); /* NULL: as NCCL has it */
};

/* The table. */

enum { MAX_TABLE_BYTES = 32 << 20, MAX_LINE = 255, MAX_FIELDS = 9, MAX_CHANNELS = 64, MAX_RANKS = 1 << 20 };

static const uint64_t UNBOUNDED = UINT64_MAX;
static const float UNLIKELY = 256; /* times the best estimate; see `worth_taking` */

static const char *const collectives[NUM_COLLECTIVES + 1] = {"broadcast",     "reduce",    "allgather",
                                                             "reduce_scatter", "allreduce", NULL};
static const char *const algos[NUM_ALGOS + 1] = {"tree", "ring",      "collnet_direct", "collnet_chain",
                                                 "nvls", "nvls_tree", "pat",            NULL};
static const char *const protos[NUM_PROTOS + 1] = {"ll", "ll128", "simple", NULL};
static const char *const links[NUM_LINKS + 1] = {"nvlink", "pci", "net", NULL};
static const char *const generations[NUM_GENERATIONS + 1] = {"volta", "ampere", "hopper", "blackwell", NULL};
static const char *const scales[NUM_SCALES + 1] = {"1", "2", "more", NULL}; /* nodes */

/* Each constant's name, the names of its indices, and where its numbers begin. */
static const struct constant {
  const char *name;
  const char *const *indices[3];
  size_t offset;
} constants[] = {
    {"base_latency_us", {algos, protos, NULL}, offsetof(struct model_constants, base_latency)},
    {"hw_latency_us", {links, algos, protos}, offsetof(struct model_constants, hw_latency)},
    {"ll_max_gb_per_s", {generations, scales, NULL}, offsetof(struct model_constants, ll_max)},
    {"ring_ll128_gb_per_s", {generations, scales, NULL}, offsetof(struct model_constants, ring_ll128)},
    {"tree_ll128_gb_per_s", {generations, scales, NULL}, offsetof(struct model_constants, tree_ll128)},
    {"tree_gb_per_s", {generations, scales, NULL}, offsetof(struct model_constants, tree)},
    {"nvls_tree_gb_per_s", {generations, scales, NULL}, offsetof(struct model_constants, nvls_tree)},
};
enum { NUM_CONSTANTS = sizeof constants / sizeof constants[0] };
enum { NUM_MODEL_VALUES = sizeof(struct model_constants) / sizeof(double) };

struct row {
  uint64_t from, to;
  int algo, proto, channels;
};

struct rows { /* of one collective, ascending */
  struct row *items;
  size_t count, room;
};

struct context {
  size_t ranks, nodes;
  logger log;
  struct rows rows[NUM_COLLECTIVES];
};

/* What has been read; where `problem` is set, none of it is used. */
struct reading {
  struct context *context;
  double *values; /* [NUM_MODEL_VALUES], of model_constants; below 0: left alone */
  uint64_t items;
  int line, ended;
  uint64_t last_to;       /* of the row before, */
  int last_collective;    /* whatever its communicators */
  uint64_t last_ranks, last_nodes;
  char plan[MAX_LINE + 1];
  char problem[MAX_LINE + 1];
};

__attribute__((format(printf, 3, 4))) static void say(const struct context *context, int level, const char *format,
                                                      ...) {
  char text[1024], *letter;
  va_list rest;
  if (!context->log) return;
  va_start(rest, format);
  vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  for (letter = text; *letter; letter++) /* a broken table's words cannot act on a terminal */
    if ((unsigned char)*letter < ' ' || *letter == 0x7f) *letter = '?';
  context->log(level, SUBSYSTEM_TUNING, "topotune", 0, "%s", text);
}

__attribute__((format(printf, 2, 3))) static int fail(struct reading *reading, const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  vsnprintf(reading->problem, sizeof reading->problem, format, rest);
  va_end(rest);
  return 0;
}

/* Numbers are read by hand: strtod goes by the job's locale, strtoull takes signs and blanks. */
static int whole_number(const char *text, uint64_t most, uint64_t *number) {
  uint64_t value = 0;
  const char *digit = text;
  if (!*text) return 0;
  for (; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return 0;
    if (value > (most - (uint64_t)(*digit - '0')) / 10) return 0;
    value = value * 10 + (uint64_t)(*digit - '0');
  }
  *number = value;
  return 1;
}

/* Digits, perhaps with a point between them; at most 15, so that nothing is lost. */
static int decimal(const char *text, double *number) {
  double value = 0, scale = 1;
  int digits = 0, point = 0;
  for (; *text; text++) {
    if (*text == '.' && digits && !point) {
      point = 1;
    } else if (*text >= '0' && *text <= '9' && digits < 15) {
      value = value * 10 + (*text - '0');
      digits++;
      if (point) scale *= 10;
    } else {
      return 0;
    }
  }
  *number = value / scale;
  return digits > 0 && text[-1] != '.';
}

static int index_of(const char *name, const char *const *names) {
  int index = 0;
  for (; names[index]; index++)
    if (strcmp(name, names[index]) == 0) return index;
  return -1;
}

static int keep(struct rows *rows, const struct row *row) {
  if (rows->count == rows->room) {
    size_t room = rows->room ? 2 * rows->room : 16;
    struct row *items = realloc(rows->items, room * sizeof *items);
    if (!items) return 0;
    rows->items = items;
    rows->room = room;
  }
  rows->items[rows->count++] = *row;
  return 1;
}

static int read_row(struct reading *reading, char **fields, int count) {
  struct context *context = reading->context;
  struct row row;
  uint64_t ranks, nodes, channels;
  int collective;
  if (count != 9) return fail(reading, "a row has %d fields, not 9", count);
  collective = index_of(fields[1], collectives);
  row.algo = index_of(fields[6], algos);
  row.proto = index_of(fields[7], protos);
  if (collective < 0) return fail(reading, "'%s' is no collective", fields[1]);
  if (row.algo < 0) return fail(reading, "'%s' is no algorithm", fields[6]);
  if (row.proto < 0) return fail(reading, "'%s' is no protocol", fields[7]);
  if (!whole_number(fields[2], MAX_RANKS, &ranks)) return fail(reading, "'%s' is no number of ranks", fields[2]);
  if (!whole_number(fields[3], MAX_RANKS, &nodes)) return fail(reading, "'%s' is no number of nodes", fields[3]);
  if (!whole_number(fields[4], UNBOUNDED - 1, &row.from)) return fail(reading, "'%s' is no size", fields[4]);
  row.to = UNBOUNDED;
  if (strcmp(fields[5], "inf") != 0 && !whole_number(fields[5], UNBOUNDED - 1, &row.to))
    return fail(reading, "'%s' is no size", fields[5]);
  if (row.to <= row.from) return fail(reading, "a row from %s to %s holds no size", fields[4], fields[5]);
  if (!whole_number(fields[8], MAX_CHANNELS, &channels))
    return fail(reading, "'%s' is no number of channels from 0 to %d", fields[8], MAX_CHANNELS);
  row.channels = (int)channels;
  if (collective == reading->last_collective && ranks == reading->last_ranks && nodes == reading->last_nodes &&
      row.from < reading->last_to)
    return fail(reading, "a row from %s does not come after the row before", fields[4]);
  reading->last_collective = collective;
  reading->last_ranks = ranks;
  reading->last_nodes = nodes;
  reading->last_to = row.to;
  reading->items++;
  if (ranks != context->ranks || nodes != context->nodes) return 1;
  {
    struct rows *rows = &context->rows[collective];
    if (rows->count && row.from < rows->items[rows->count - 1].to)
      return fail(reading, "a row from %s does not come after those before", fields[4]);
    return keep(rows, &row) || fail(reading, "there is no memory");
  }
}

static int read_constant(struct reading *reading, char **fields, int count) {
  int which, level, position = 0, num_indices;
  double value;
  for (which = 0; which < NUM_CONSTANTS; which++)
    if (count > 1 && strcmp(fields[1], constants[which].name) == 0) break;
  if (which == NUM_CONSTANTS) return fail(reading, "'%s' is no constant", count > 1 ? fields[1] : "");
  num_indices = constants[which].indices[2] ? 3 : 2;
  if (count != num_indices + 3) return fail(reading, "%s has %d fields, not %d", fields[1], count, num_indices + 3);
  for (level = 0; level < num_indices; level++) {
    const char *const *names = constants[which].indices[level];
    int index = index_of(fields[2 + level], names), size = 0;
    if (index < 0) return fail(reading, "'%s' is no index of %s", fields[2 + level], fields[1]);
    while (names[size]) size++;
    position = position * size + index;
  }
  if (!decimal(fields[count - 1], &value) || value > 1e6)
    return fail(reading, "'%s' is no number from 0 to 1000000", fields[count - 1]);
  reading->values[constants[which].offset / sizeof(double) + (size_t)position] = value;
  reading->items++;
  return 1;
}

/* One line, which it cuts into fields. */
static int read_line(struct reading *reading, char *line) {
  char *fields[MAX_FIELDS + 1], *rest = line;
  uint64_t items;
  int count = 0;
  if (reading->line == 1)
    return strcmp(line, "topotune-nccl-table 1") == 0 || fail(reading, "it is no topotune-nccl-table 1");
  if (line[0] == '#') return 1;
  if (reading->ended) return fail(reading, "there is more after the end");
  if (strncmp(line, "plan ", 5) == 0) {
    memcpy(reading->plan, line + 5, strlen(line + 5) + 1);
    return 1;
  }
  while (rest && count <= MAX_FIELDS) {
    char *space = strchr(rest, ' ');
    fields[count++] = rest;
    rest = space ? space + 1 : NULL;
    if (space) *space = '\0';
  }
  if (strcmp(fields[0], "row") == 0) return read_row(reading, fields, count);
  if (strcmp(fields[0], "constant") == 0) return read_constant(reading, fields, count);
  if (strcmp(fields[0], "end") != 0) return fail(reading, "'%s' is no item of a table", fields[0]);
  if (count != 2 || !whole_number(fields[1], UNBOUNDED - 1, &items) || items != reading->items)
    return fail(reading, "it has %llu rows and constants, not the '%s' that it says",
                (unsigned long long)reading->items, count > 1 ? fields[1] : "");
  reading->ended = 1;
  return 1;
}

/* All lines of a table, whose bytes it cuts; 1 if it is whole and sound. */
static int read_table(struct reading *reading, char *text, size_t size) {
  char *end = text + size, *line = text;
  while (line < end) {
    char *stop = memchr(line, '\n', (size_t)(end - line));
    reading->line++;
    if (!stop) return fail(reading, "the last line has no end");
    if (stop - line > MAX_LINE) return fail(reading, "it has more than %d bytes", MAX_LINE);
    if (memchr(line, '\0', (size_t)(stop - line))) return fail(reading, "it has a zero byte");
    *stop = '\0';
    if (!read_line(reading, line)) return 0;
    line = stop + 1;
  }
  return reading->ended || fail(reading, "the end is missing");
}

/* A regular file's bytes, NULL with a reason otherwise; a pipe or device is not waited for. */
static char *read_file(const char *path, size_t *size, const char **reason) {
  struct stat status;
  char *text = NULL;
  size_t used = 0;
  int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    *reason = errno == ENOENT ? "no such file" : "it cannot be opened";
    return NULL;
  }
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    *reason = "it is no regular file";
  } else if (status.st_size > MAX_TABLE_BYTES) {
    *reason = "it is too large";
  } else if (!(text = malloc((size_t)status.st_size + 1))) {
    *reason = "there is no memory";
  } else {
    while (used < (size_t)status.st_size) {
      ssize_t got = read(file, text + used, (size_t)status.st_size - used);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      used += (size_t)got;
    }
    *size = used; /* one that was cut short lacks its end */
  }
  close(file);
  return text;
}

EXPORTED extern const struct tuner_v6 ncclTunerPlugin_v6;

/* Where the table is; 0 where there is none. */
static int table_path(char *path, size_t room) {
  const char *named = getenv("TOPOTUNE_NCCL_TABLE");
  Dl_info library;
  size_t length;
  char *suffix = NULL, *base, *found;
  if (named) {
    length = strlen(named);
    if (!length || length >= room) return 0;
    memcpy(path, named, length + 1);
    return 1;
  }
  if (!dladdr(&ncclTunerPlugin_v6, &library) || !library.dli_fname) return 0;
  length = strlen(library.dli_fname);
  if (length + sizeof ".table" > room) return 0;
  memcpy(path, library.dli_fname, length + 1);
  base = strrchr(path, '/');
  for (found = base ? base : path; (found = strstr(found, ".so")); found++) suffix = found;
  memcpy(suffix ? suffix : path + length, ".table", sizeof ".table");
  return 1;
}

static void forget(struct context *context) {
  int collective;
  for (collective = 0; collective < NUM_COLLECTIVES; collective++) {
    free(context->rows[collective].items);
    memset(&context->rows[collective], 0, sizeof context->rows[collective]);
  }
}

/* The table into a context without rows, and over NCCL's constants where there are any. */
static void load(struct context *context, struct model_constants *model) {
  char path[4096];
  double values[NUM_MODEL_VALUES];
  struct reading reading;
  const char *reason = NULL;
  char *text;
  size_t size = 0, kept = 0, index;
  int collective;
  if (!table_path(path, sizeof path)) {
    say(context, LOG_INFO, "topotune: no table is named, NCCL chooses by itself");
    return;
  }
  text = read_file(path, &size, &reason);
  if (!text) {
    say(context, LOG_WARN, "topotune: %s: %s; NCCL chooses by itself", path, reason);
    return;
  }
  memset(&reading, 0, sizeof reading);
  for (index = 0; index < NUM_MODEL_VALUES; index++) values[index] = -1;
  reading.context = context;
  reading.values = values;
  reading.last_collective = -1;
  if (!read_table(&reading, text, size)) {
    forget(context);
    say(context, LOG_WARN, "topotune: %s: line %d: %s; NCCL chooses by itself", path, reading.line, reading.problem);
  } else {
    for (index = 0; model && index < NUM_MODEL_VALUES; index++)
      if (values[index] >= 0) memcpy((char *)model + index * sizeof(double), &values[index], sizeof(double));
    for (collective = 0; collective < NUM_COLLECTIVES; collective++) kept += context->rows[collective].count;
    say(context, LOG_INFO, "topotune: %s (%s): %zu rows for communicators of %zu ranks on %zu nodes", path,
        reading.plan[0] ? reading.plan : "of no plan", kept, context->ranks, context->nodes);
  }
  free(text);
}

/* `chosen`: the environment chooses, the table is not read. */
static result start(void **place, size_t ranks, size_t nodes, logger log, struct model_constants *model, int chosen) {
  struct context *context = calloc(1, sizeof *context);
  *place = context;
  if (!context) return 0; /* get_coll_info then does nothing */
  context->ranks = ranks;
  context->nodes = nodes;
  context->log = log;
  if (chosen)
    say(context, LOG_INFO, "topotune: NCCL_ALGO or NCCL_PROTO is set, which NCCL 2.21 would not check: it chooses");
  else
    load(context, model);
  return 0;
}

static result stop(void *place) {
  if (place) {
    forget(place);
    free(place);
  }
  return 0;
}

/* The row that holds a message, or NULL. */
static const struct row *find(const struct context *context, int collective, size_t bytes) {
  const struct rows *rows;
  size_t low = 0, high;
  if (!context || collective < 0 || collective >= NUM_COLLECTIVES) return NULL;
  rows = &context->rows[collective];
  high = rows->count;
  while (low < high) { /* the first row that ends after the message */
    size_t middle = low + (high - low) / 2;
    if (rows->items[middle].to != UNBOUNDED && rows->items[middle].to <= bytes)
      low = middle + 1;
    else
      high = middle;
  }
  return low < rows->count && rows->items[low].from <= bytes ? &rows->items[low] : NULL;
}

/*
 * Whether NCCL can run a cell, and does not warn of it: for some types it raises a cell's estimate a thousandfold,
 * to keep rings of more than 8 ranks from losing the precision of float8. No plan can know, so what is that far
 * from the best is left to NCCL.
 */
static int worth_taking(const float *costs, int num_cells, int cell) {
  float best = costs[cell];
  int other;
  if (!(costs[cell] >= 0)) return 0;
  for (other = 0; other < num_cells; other++)
    if (costs[other] >= 0 && costs[other] < best) best = costs[other];
  return !(best > 0) || costs[cell] <= UNLIKELY * best;
}

static void choose(const struct context *context, int collective, size_t bytes, float *costs, int num_algos,
                   int num_protos, int *channels) {
  const struct row *row = find(context, collective, bytes);
  int cell;
  if (!row || !costs || row->algo >= num_algos || row->proto >= num_protos) return;
  cell = row->algo * num_protos + row->proto;
  if (!worth_taking(costs, num_algos * num_protos, cell)) return;
  costs[cell] = 0;
  if (row->channels) *channels = row->channels;
}

static result init_v2(size_t ranks, size_t nodes, logger log, void **context) {
  return start(context, ranks, nodes, log, NULL, getenv("NCCL_ALGO") || getenv("NCCL_PROTO"));
}

/*
 * Here NCCL 2.21 takes what it is told unchecked, and shows no estimates: only what runs on every machine is told.
 * LL128 corrupts data where NCCL does not allow it, LL does on networks that do not keep the order of writes (EFA);
 * the other algorithms need hardware.
 */
static result get_coll_info_v2(void *context, int collective, size_t bytes, int collnet, int nvls, int pipe_ops,
                               int *algo, int *proto, int *channels) {
  const struct row *row = find(context, collective, bytes);
  (void)collnet, (void)nvls, (void)pipe_ops;
  if (!row || row->algo > RING) return 0;
  if (row->proto != SIMPLE && (row->proto != LL || ((struct context *)context)->nodes > 1)) return 0;
  *algo = row->algo;
  *proto = row->proto;
  if (row->channels) *channels = row->channels;
  return 0;
}

static result init_v3(size_t ranks, size_t nodes, logger log, void **context) {
  return start(context, ranks, nodes, log, NULL, 0);
}

static result get_coll_info_v3(void *context, int collective, size_t bytes, int pipe_ops, float **costs,
                               int num_algos, int num_protos, int *channels) {
  (void)pipe_ops;
  choose(context, collective, bytes, (float *)costs, num_algos, num_protos, channels);
  return 0;
}

static result get_coll_info_v4(void *context, int collective, size_t bytes, int pipe_ops, float **costs,
                               int num_algos, int num_protos, int registered, int *channels) {
  (void)pipe_ops, (void)registered;
  choose(context, collective, bytes, (float *)costs, num_algos, num_protos, channels);
  return 0;
}

static result init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger log,
                      struct domain_info *domains, struct model_constants *model) {
  (void)communicator, (void)domains;
  return start(context, ranks, nodes, log, model, 0);
}

EXPORTED extern const struct tuner_v2 ncclTunerPlugin_v2;
EXPORTED extern const struct tuner_v3 ncclTunerPlugin_v3;
EXPORTED extern const struct tuner_v4 ncclTunerPlugin_v4;
EXPORTED extern const struct tuner_v5 ncclTunerPlugin_v5;

const struct tuner_v2 ncclTunerPlugin_v2 = {"topotune", init_v2, get_coll_info_v2, stop};
const struct tuner_v3 ncclTunerPlugin_v3 = {"topotune", init_v3, get_coll_info_v3, stop};
const struct tuner_v4 ncclTunerPlugin_v4 = {"topotune", init_v3, get_coll_info_v4, stop};
const struct tuner_v5 ncclTunerPlugin_v5 = {"topotune", init_v5, get_coll_info_v4, stop};
const struct tuner_v6 ncclTunerPlugin_v6 = {"topotune", init_v5, get_coll_info_v4, stop, NULL};

/*
 * The tuner plugin without Python around it, for valgrind and the sanitizers.
 *
 *     nccl_driver PLUGIN.so TABLE...
 *
 * With each table in turn, under every version of the interface: threads that each make a communicator, ask for
 * all collectives at many sizes, and end it. Prints how many calls chose a cell; exits 1 where a call failed.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { VERSIONS = 5, THREADS = 4, ALGOS = 7, PROTOS = 3 };

typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
typedef int (*init_old)(size_t, size_t, logger, void **);
typedef int (*init_new)(void **, uint64_t, size_t, size_t, logger, void *, double *);
typedef int (*choose_v2)(void *, int, size_t, int, int, int, int *, int *, int *);
typedef int (*choose_v3)(void *, int, size_t, int, float **, int, int, int *);
typedef int (*choose_v4)(void *, int, size_t, int, float **, int, int, int, int *);
typedef int (*end)(void *);

/* Of any version: a name, then three functions. */
struct tuner {
  const char *name;
  void *init, *choose, *end;
};

struct job {
  const struct tuner *tuner;
  int version, failed;
  long chosen;
};

static void log_nothing(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static void *work(void *place) {
  struct job *job = place;
  const struct tuner *tuner = job->tuner;
  double constants[144] = {0};
  int domains[3] = {1, 16, 16};
  void *context = NULL;
  size_t bytes;
  if (job->version >= 5)
    job->failed |= ((init_new)tuner->init)(&context, 1, 16, 2, log_nothing, domains, constants);
  else
    job->failed |= ((init_old)tuner->init)(16, 2, log_nothing, &context);
  for (bytes = 1; bytes && bytes < (size_t)1 << 40; bytes = bytes * 2 + bytes % 3) {
    int collective;
    for (collective = -1; collective < 7; collective++) {
      float costs[ALGOS * PROTOS];
      int cell, channels = 0, algo = -1, proto = -1;
      for (cell = 0; cell < ALGOS * PROTOS; cell++) costs[cell] = cell % 5 ? 10.0f + (float)cell : -1.0f;
      if (job->version == 2) {
        job->failed |= ((choose_v2)tuner->choose)(context, collective, bytes, 1, 1, 1, &algo, &proto, &channels);
        job->chosen += algo >= 0;
      } else {
        if (job->version == 3)
          job->failed |=
              ((choose_v3)tuner->choose)(context, collective, bytes, 1, (float **)costs, ALGOS, PROTOS, &channels);
        else
          job->failed |= ((choose_v4)tuner->choose)(context, collective, bytes, 1, (float **)costs, ALGOS, PROTOS, 0,
                                                    &channels);
        for (cell = 0; cell < ALGOS * PROTOS; cell++) job->chosen += costs[cell] == 0;
      }
    }
  }
  job->failed |= ((end)tuner->end)(context);
  return NULL;
}

int main(int count, char **arguments) {
  long chosen = 0;
  int failed = 0, table, version, thread;
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "%s\n", count > 1 ? dlerror() : "usage: nccl_driver PLUGIN.so TABLE...");
    return 1;
  }
  for (table = 2; table < count; table++) {
    setenv("TOPOTUNE_NCCL_TABLE", arguments[table], 1);
    for (version = 2; version < 2 + VERSIONS; version++) {
      char symbol[] = "ncclTunerPlugin_v0";
      struct job jobs[THREADS];
      pthread_t threads[THREADS];
      symbol[sizeof symbol - 2] = (char)('0' + version);
      for (thread = 0; thread < THREADS; thread++) {
        jobs[thread] = (struct job){dlsym(library, symbol), version, 0, 0};
        if (!jobs[thread].tuner || pthread_create(&threads[thread], NULL, work, &jobs[thread])) return 1;
      }
      for (thread = 0; thread < THREADS; thread++) {
        pthread_join(threads[thread], NULL);
        failed |= jobs[thread].failed;
        chosen += jobs[thread].chosen;
      }
    }
  }
  dlclose(library);
  printf("%ld\n", chosen);
  return failed;
}

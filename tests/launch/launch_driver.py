"""A process as a launcher would start it: runs a function of launch_entries on all ranks.

launch_driver.py FUNCTION PAYLOAD [FLAG…]      flags: share, no-pmix, and a number of local ranks
"""

import json
import sys

import launch_entries

from topotune.errors import TopotuneError
from topotune.launch import launcher_here, pmix, run_on_ranks


def main(function, payload, *flags):
    if "no-pmix" in flags:
        pmix.tell_all = lambda rank, text: None
    num_local_ranks = next((int(flag) for flag in flags if flag.isdigit()), None)
    try:
        launcher = launcher_here(num_local_ranks)
        result = run_on_ranks(
            getattr(launch_entries, function),
            json.loads(payload),
            launcher,
            num_local_ranks=num_local_ranks,
            default_ranks=2,
            share_result="share" in flags,
            report=lambda line: print(line, file=sys.stderr),
        )
    except TopotuneError as error:
        print(f"{type(error).__name__}: {error.message}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    print(json.dumps({"speaks": launcher.speaks, "result": result}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

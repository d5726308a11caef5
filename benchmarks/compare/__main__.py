"""Octavo beside its peers.

    python -m benchmarks.compare install [llamacpp openvino vllm] [--folder DIR]
    python -m benchmarks.compare run --models smollm2,gemma3 [--runs 5] [--json FILE]

`install` builds or installs each peer, pinned, into a folder of its own. `run` measures prefill of 512 tokens, decode after a
prompt of 128, and 32 clients of 128 + 128 tokens, all greedy, end tokens ignored, random prompts, and prints medians and ratios.
The peers take turns, each round in the opposite order of the last. Each setting of a peer is measured; the best one of each
figure counts. A sample during which other programs used a tenth of a core or more is taken again.

All peers of a model stay loaded between their turns, each setting with weights of its own. With `--reload`, or `--peers`, less is
loaded at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.compare.figures import MODELS
from benchmarks.compare.install import INSTALLERS, install
from benchmarks.compare.run import Plan, run
from benchmarks.compare.sampling import FIGURES, USUAL

DEFAULT_FOLDER = Path.home() / ".cache" / "octavo" / "peers"


def main() -> None:
    args = _arguments()
    if args.command == "install":
        for name in args.peers or list(INSTALLERS):
            install(name, args.folder)
    else:
        run(_plan(args), args.folder, Path(args.json) if args.json else None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where the peers live")
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="install peers into folders of their own")
    installing.add_argument(
        "peers", nargs="*", metavar="PEER", help=f"of {', '.join(INSTALLERS)}; default: all"
    )
    _add_run_flags(commands.add_parser("run", help="measure and print one table"))
    return parser.parse_args()


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models", "--figures", default="smollm2", help=f"of {', '.join(MODELS)}; separated by commas"
    )
    parser.add_argument("--of", default=",".join(USUAL), help=f"which of {', '.join(FIGURES)}")
    parser.add_argument("--peers", help="only these; default: every one of the model's that is installed")
    parser.add_argument(
        "--settings", help="only these of the peers that have them, when an earlier run told which is best"
    )
    parser.add_argument("--runs", type=int, default=5, help="samples of each figure; their median counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="also write every sample here")
    parser.add_argument(
        "--reload",
        action="store_true",
        help="one peer in memory at a time: each is started again in every turn",
    )


def _plan(args: argparse.Namespace) -> Plan:
    return Plan(
        models=args.models.split(","),
        figures=args.of.split(","),
        peers=args.peers.split(",") if args.peers else None,
        runs=args.runs,
        threads=args.threads,
        reload=args.reload,
        settings=args.settings.split(",") if args.settings else None,
    )


if __name__ == "__main__":
    main()

"""Builds the site: `python -m tools.site`, or `make docs`. A broken link is an error.

Pages link to pages outside of `docs/`, which a site generator cannot read from there. So all pages and pictures, and
the few source files that pages link to, are first copied to one folder under their own paths.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build/pages"
SHOWN = ("*.md", "*.svg", "*.png", "LICENSE", "bench/least.py", "tests/compat/promises.py", "tests/codex_versions/*.py")
HIDDEN = (".github/", "src/")
# They would come before the pages that readers look for.
NOT_SEARCHED = "docs/decisions/0*.md"


def main() -> int:
    """Copy the pages, and let Zensical make the site of them."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", *SHOWN], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    for name in listed.stdout.splitlines():
        if not name.startswith(HIDDEN):
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, PAGES / name)
    for page in PAGES.glob(NOT_SEARCHED):
        page.write_text(f"---\nsearch:\n  exclude: true\n---\n\n{page.read_text(encoding='utf-8')}", encoding="utf-8")
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

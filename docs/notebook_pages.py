"""The notebooks of the site: each file of `docs/notebooks` is executed, and becomes a page with all it has shown."""

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent / "notebooks"
ROOT = Path(__file__).resolve().parents[1]
ORDER = ("table", "larger-than-memory")
TIMEOUT_S = 240


@dataclass(frozen=True)
class NotebookPage:
    """A page in Markdown, and the pictures that it shows, by their file names."""

    text: str
    pictures: dict[str, bytes]


def executed(name: str, repository: str) -> NotebookPage:
    """Execute a notebook in a folder of its own, and return its page; an error in a cell is an error here.

    `repository` is the URL of the folder of the project, to which the page links.
    """
    import nbformat
    from nbconvert import MarkdownExporter
    from nbconvert.preprocessors import ExecutePreprocessor
    from traitlets.config import Config

    found = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    before = os.environ.get("PYTHONPATH")
    with TemporaryDirectory() as folder:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before)))  # of the kernel
        try:
            sockets = Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{folder}/socket"}})  # files, no ports
            ExecutePreprocessor(timeout=TIMEOUT_S, config=sockets).preprocess(found, {"metadata": {"path": folder}})
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
    text, resources = MarkdownExporter().from_notebook_node(found, {"unique_key": name})
    pictures = {key: _bytes(value) for key, value in resources.get("outputs", {}).items()}
    link = f"\n[This notebook]({repository}docs/notebooks/{name}.ipynb) was executed when the site was built.\n"
    text = re.sub(r'<pre class="daskkern"[^>]*>', "<pre>", text)  # progress, in the font of the site
    text = text.replace("![png](", f"![A figure of the notebook {name}](")
    head, _, rest = text.lstrip().partition("\n")
    return NotebookPage(f"{head}\n{link}{rest}", pictures)


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(value)

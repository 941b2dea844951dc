"""What changed between two specs, for those who use the package: names and messages, bytes, meaning."""

from kvcanary_gen.diff.changes import Change, changes
from kvcanary_gen.diff.facts import Kind
from kvcanary_gen.diff.version import needed, read_version

__all__ = ["Change", "Kind", "changes", "needed", "read_version"]

"""The provider that every system talks to: prepared bytes, played again by a plain process of its own on loopback."""

"""What people import: `connect`, `Engine`, `Stream`."""

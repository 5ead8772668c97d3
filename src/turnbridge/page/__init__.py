"""The page that a browser shows at `/`: its files, its sessions, and the JSON API that it reads."""

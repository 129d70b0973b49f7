#!/usr/bin/env bash
# What the load of log_writes.sh runs at a mark.
exec bash "$(dirname "$(realpath "$0")")/log_writes.sh" hook "$1"

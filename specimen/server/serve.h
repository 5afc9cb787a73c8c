// The servers' entry point: `gravel-specimen serve`, `prefill`, `decode` and `router`.
#ifndef GV_SERVER_SERVE_H
#define GV_SERVER_SERVE_H

// Runs a server until a signal ends it; argv[0] is the command. Returns the exit code: 0 after a shutdown in which
// every running request was finished, 1 when some had to be refused or the engine failed, 2 for wrong usage, 3 when the
// server could not start.
int gv_specimen_serve_main(int argc, char **argv);

#endif

// What the servers say to whoever started them: one line each on standard error.
#ifndef GV_SERVER_LOG_H
#define GV_SERVER_LOG_H

// "gravel-specimen NAME: ..." with the name given to gv_log_name.
void gv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Sets the name that lines begin with, a static string; before any thread is started.
void gv_log_name(const char *name);

#endif

/* Trying a plug-in where it can do no harm. A plug-in's set-up is the vendor's code meeting this machine's drivers for the first time: it may crash, abort
 * or wait for ever. So it runs once in a forked child with a time limit; only what has passed there is done again in this process. Called by client.c.
 *
 * The child tells its progress through a pipe, one letter a stage, and ends with "K" (it worked) or "E", the code and the message. What it writes to
 * stdout and stderr goes to an unnamed file, whose tail explains a failure. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pjrt.h"

static const char *const doing[] = {[TERN_PJRT_LOADING] = "being loaded",
                                    [TERN_PJRT_INITIALISING] = "initialising (PJRT_Plugin_Initialize)",
                                    [TERN_PJRT_CREATING] = "making its client (PJRT_Client_Create)",
                                    [TERN_PJRT_READY] = "ending"};

static void say(int pipe, const void *data, size_t size) {
  while (write(pipe, data, size) < 0 && errno == EINTR) continue;
}

static void tell_stage(void *context, tern_pjrt_stage stage) { say(*(int *)context, &(char){(char)('0' + stage)}, 1); }

static _Noreturn void child(const char *path, int devices, double seconds, int pipe, int words) {
  static const int reset[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGTERM, SIGINT, SIGPIPE};
  for (size_t s = 0; s < TERN_COUNT(reset); s++) signal(reset[s], SIG_DFL); /* the host's handlers would speak for it */
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm((unsigned)seconds + 5); /* should the parent be gone */
  dup2(words, 1);
  dup2(words, 2);

  tern_pjrt_set_up set_up;
  tern_status status = tern_pjrt_set_up_run(path, devices, tell_stage, &pipe, &set_up);
  if (!status) {
    say(pipe, "K", 1);
  } else {
    char message[2048];
    int n = snprintf(message, sizeof message, "E%c%s", 'A' + (char)tern_error_code(status), tern_error_message(status));
    say(pipe, message, n < (int)sizeof message ? (size_t)n : sizeof message - 1);
  }
  _exit(0);
}

/* The end of what the child wrote, on one line: "" or "; its last words: ...". */
static void last_words(int file, char *out, size_t size) {
  char tail[601];
  off_t length = lseek(file, 0, SEEK_END), start = length > 600 ? length - 600 : 0;
  ssize_t n = length > 0 ? pread(file, tail, 600, start) : 0;
  out[0] = 0;
  if (n <= 0) return;
  while (n && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) n--;
  for (ssize_t i = 0; i < n; i++)
    if ((unsigned char)tail[i] < ' ') tail[i] = ' ';
  tail[n] = 0;
  if (n) snprintf(out, size, "; its last words: %s", tail);
}

tern_status tern_pjrt_probe(const char *path, int devices, double seconds) {
  int ends[2], words = memfd_create("tern-probe", MFD_CLOEXEC);
  if (words < 0 || pipe2(ends, O_CLOEXEC)) {
    if (words >= 0) close(words);
    return tern_error_new(TERN_INTERNAL, "cannot try the plug-in %s in a child process: %s", path, strerror(errno));
  }
  pid_t pid = fork();
  if (pid < 0) {
    int why = errno;
    close(ends[0]), close(ends[1]), close(words);
    return tern_error_new(TERN_INTERNAL, "cannot try the plug-in %s in a child process: %s", path, strerror(why));
  }
  if (pid == 0) child(path, devices, seconds, ends[1], words);
  close(ends[1]);

  double deadline = tern_now() + seconds;
  char report[2304];
  size_t length = 0;
  bool late = false, ended = false;
  while (!ended && length < sizeof report - 1) {
    double left = deadline - tern_now();
    if (left <= 0) {
      late = true;
      break;
    }
    int ready = poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, left > 1 ? 1000 : (int)(left * 1000) + 1);
    if (ready <= 0) {
      /* A helper the plug-in started may keep the pipe open after the child has died. */
      siginfo_t info = {0};
      ended = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
      continue;
    }
    ssize_t n = read(ends[0], report + length, sizeof report - 1 - length);
    if (n > 0) length += (size_t)n;
    if (n == 0 || (n < 0 && errno != EINTR)) ended = true;
    report[length] = 0;
    if (report[strspn(report, "0123")] == 'K') break;
  }
  report[length] = 0;
  if (late) kill(pid, SIGKILL);
  int how = 0;
  /* Drivers may take their time to let go of a device; but not for ever. */
  for (double limit = tern_now() + 10; waitpid(pid, &how, WNOHANG) == 0; usleep(1000))
    if (tern_now() > limit) kill(pid, SIGKILL);
  close(ends[0]);

  tern_pjrt_stage stage = TERN_PJRT_LOADING;
  char *at = report;
  for (; *at >= '0' && *at <= '0' + TERN_PJRT_READY; at++) stage = (tern_pjrt_stage)(*at - '0');
  char tail[700];
  last_words(words, tail, sizeof tail);
  close(words);
  if (*at == 'K') return NULL;
  if (*at == 'E' && at[1]) return tern_error_new((tern_code)(at[1] - 'A'), "%s%s", at + 2, tail);
  if (late)
    return tern_error_new(TERN_TIMEOUT, "the plug-in %s did not answer within %g s (TERN_PLUGIN_TIMEOUT) while %s%s", path, seconds, doing[stage], tail);
  if (WIFSIGNALED(how))
    return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s crashed (%s) while %s; tried in a child process, this one is unharmed%s", path,
                          strsignal(WTERMSIG(how)), doing[stage], tail);
  return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s ended the process (exit status %d) while %s; tried in a child process, this one is unharmed%s",
                        path, WEXITSTATUS(how), doing[stage], tail);
}

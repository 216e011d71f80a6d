/* Runs a program with another time of day, for tests: other_time FILE PROGRAM ARGUMENTS...

   FILE holds seconds that are added to CLOCK_REALTIME whenever the program asks for it; the file is
   read each time, so that a test changes the time while the program runs. Other clocks are left
   alone. Static programs have no dynamic linker that could replace a function, so the tracer
   answers the system call. Linux on x86-64. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)

static pid_t program;

static void pass_on(int number) { kill(program, number); }

static long seconds_added(const char *path) {
    long seconds = 0;
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

/* In the child: the kernel stops at every question for the time of day. */
static void ask_the_tracer(void) {
    struct sock_filter steps[] = {
        LOAD(nr), UNLESS(__NR_clock_gettime, 3), LOAD(args[0]), UNLESS(CLOCK_REALTIME, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        _exit(125);
}

/* A new program reads the time without a system call where the kernel tells it how: the entry of
   its auxiliary vector that does becomes one that means nothing. */
static void take_vdso_away(pid_t thread) {
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, thread, NULL, &registers);
    unsigned long at = registers.rsp + 8; /* behind argc */
    for (int list = 0; list < 2; list++) { /* arguments, environment */
        while (ptrace(PTRACE_PEEKDATA, thread, at, NULL) != 0) at += 8;
        at += 8;
    }
    for (long kind; (kind = ptrace(PTRACE_PEEKDATA, thread, at, NULL)) != AT_NULL; at += 16)
        if (kind == AT_SYSINFO_EHDR) ptrace(PTRACE_POKEDATA, thread, at, (void *)AT_IGNORE);
}

static void answer(pid_t thread, const char *path) {
    struct user_regs_struct registers;
    struct timespec now;
    ptrace(PTRACE_GETREGS, thread, NULL, &registers);
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += seconds_added(path);
    if (now.tv_sec < 0) now.tv_sec = 0;
    ptrace(PTRACE_POKEDATA, thread, registers.rsi, (void *)now.tv_sec);
    ptrace(PTRACE_POKEDATA, thread, registers.rsi + 8, (void *)now.tv_nsec);
    registers.orig_rax = -1; /* The call itself is left out. */
    registers.rax = 0;
    ptrace(PTRACE_SETREGS, thread, NULL, &registers);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int status, passed_on[] = {SIGTERM, SIGINT, SIGHUP};
    program = fork();
    if (program == 0) {
        ask_the_tracer();
        execvp(arguments[2], arguments + 2);
        _exit(127);
    }
    for (int at = 0; at < 3; at++) signal(passed_on[at], pass_on);
    waitpid(program, &status, 0);
    ptrace(PTRACE_SETOPTIONS, program, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP |
           PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC);
    ptrace(PTRACE_CONT, program, NULL, NULL);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno != EINTR) return 1;
        if (thread < 0) continue;
        if (!WIFSTOPPED(status)) {
            if (thread != program) continue;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        long number = WSTOPSIG(status);
        int event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP) answer(thread, arguments[1]);
        if (event == PTRACE_EVENT_EXEC) take_vdso_away(thread);
        if (event || number == SIGSTOP || number == SIGTRAP) number = 0;
        ptrace(PTRACE_CONT, thread, NULL, (void *)number);
    }
}

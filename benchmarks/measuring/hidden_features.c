/* Hides instruction sets from a process: a library for LD_PRELOAD.
 *
 * Linux can refuse the instruction cpuid to a process (arch_prctl, where /proc/cpuinfo says cpuid_fault). Each use then
 * raises SIGSEGV, and the handler here answers in its place, without the bits of the sets in the environment variable
 * EQFUSE_HIDDEN ("avx512", "vnni", or both, divided by a comma). Threads inherit the refusal, and programs that the
 * process starts get it by LD_PRELOAD. The C library has asked before this library is loaded: its memcpy may still be
 * the one with AVX-512.
 *
 *     gcc -shared -fPIC -O1 -o hidden.so hidden_features.c -ldl
 *     EQFUSE_HIDDEN=avx512,vnni LD_PRELOAD=./hidden.so python program.py
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012

typedef struct {
    const char *set;
    uint32_t leaf, subleaf;
    int word; /* of eax, ebx, ecx, edx */
    uint32_t bits;
} hidden;

#define BIT(n) (1u << (n))
static const hidden table[] = {
    /* AVX-512: F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT, FP16
     * and with them AMX: BF16, TILE, INT8. */
    {"avx512", 7, 0, 1, BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)},
    {"avx512", 7, 0, 2, BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14)},
    {"avx512", 7, 0, 3, BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)},
    {"avx512", 7, 1, 0, BIT(5) | BIT(21)},  /* AVX512_BF16, AMX_FP16 */
    {"avx512", 7, 1, 3, BIT(8) | BIT(19)},  /* AMX_COMPLEX, AVX10 */
    {"vnni", 7, 0, 2, BIT(11)},             /* AVX512_VNNI */
    {"vnni", 7, 1, 0, BIT(4)},              /* AVX_VNNI */
    {"vnni", 7, 1, 3, BIT(4) | BIT(10)},    /* AVX_VNNI_INT8, AVX_VNNI_INT16 */
};

static int is_hidden[sizeof table / sizeof *table];
static struct sigaction others;
static int (*next_sigaction)(int, const struct sigaction *, struct sigaction *);

static long refuse_cpuid(int is_refused) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, (unsigned long)!is_refused); }

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) { /* another fault: that of the program */
        if (others.sa_flags & SA_SIGINFO) others.sa_sigaction(number, info, context);
        else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) others.sa_handler(number);
        else next_sigaction(SIGSEGV, &others, NULL);
        return;
    }
    const uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
    uint32_t words[4];
    refuse_cpuid(0);
    __asm__ volatile("cpuid" : "=a"(words[0]), "=b"(words[1]), "=c"(words[2]), "=d"(words[3]) : "a"(leaf), "c"(subleaf));
    refuse_cpuid(1);
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i)
        if (is_hidden[i] && table[i].leaf == leaf && table[i].subleaf == subleaf) words[table[i].word] &= ~table[i].bits;
    registers[REG_RAX] = words[0], registers[REG_RBX] = words[1];
    registers[REG_RCX] = words[2], registers[REG_RDX] = words[3];
    registers[REG_RIP] += 2;
}

/* Handlers that others install come after the one here. */
int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    if (!next_sigaction) next_sigaction = dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV) return next_sigaction(number, new, old);
    if (old) *old = others;
    if (new) others = *new;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction old, new = {.sa_handler = handler, .sa_flags = SA_RESTART};
    return sigaction(number, &new, &old) != 0 ? SIG_ERR : old.sa_handler;
}

static __attribute__((constructor)) void hide(void) {
    const char *sets = getenv("EQFUSE_HIDDEN");
    if (!sets) return;
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i) is_hidden[i] = strstr(sets, table[i].set) != NULL;
    if (!next_sigaction) next_sigaction = dlsym(RTLD_NEXT, "sigaction");
    struct sigaction own = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    next_sigaction(SIGSEGV, &own, NULL);
    if (refuse_cpuid(1) != 0) {
        fputs("hidden_features: this machine cannot refuse the instruction cpuid (no cpuid_fault in /proc/cpuinfo)\n", stderr);
        _exit(1);
    }
}

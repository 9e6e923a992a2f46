/* Starts the example on a Cortex-M without an operating system. Its files and arguments are those of the machine that a
 * debugger or an emulator runs on (semihosting, by newlib's librdimon):
 *
 *   qemu-system-arm -M mps3-an547 -display none -semihosting-config \
 *       enable=on,target=native,arg=example,arg=INPUT,arg=OUTPUT -kernel eqfuse_example */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern unsigned char end[], eqfuse_heap_end[], eqfuse_stack_end[]; /* board.ld */
void _start(void); /* newlib's: takes the stack that the machine names, fills variables, calls main */
void _exit(int status);
void *_sbrk(ptrdiff_t bytes);

#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88) /* CPACR */
#define FLOATS_AND_VECTORS (0xFu << 20)

static void start(void) {
    COPROCESSORS |= FLOATS_AND_VECTORS;
    __asm__ volatile("dsb\n isb");
    _start();
}

static void fault(void) { _exit(139); /* as a shell tells of a program that a fault ended */ }

/* The stack, and what to run after a reset and at the faults of the processor. */
__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))eqfuse_stack_end, start, fault, fault, fault, fault, fault, fault,
};

/* More memory for malloc. */
void *_sbrk(ptrdiff_t bytes) {
    static unsigned char *top = end;
    if (bytes > eqfuse_heap_end - top) return errno = ENOMEM, (void *)-1;
    return (top += bytes) - bytes;
}

// A module that test_stack.c loads and unloads. Compiled twice under different names.
#include <stdint.h>

__attribute__((visibility("default"))) uint64_t plugin_call(uint64_t (*function)(void));

uint64_t plugin_call(uint64_t (*function)(void))
{
    // Not a tail call: this module's frame must be on the stack.
    volatile uint64_t result = function();
    return result;
}

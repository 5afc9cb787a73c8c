// The Sanitizer API as a source. The driver loads libgravel-record.so as its injection library and calls
// InitializeInjection; from then on module loads are watched. Nothing is patched until a replay is armed, and nothing
// stays patched after it: patching costs 2x even when no data is gathered, and a patched graph with programmatic edges
// faults. The graphs domain is on only while a graph with conditional nodes is recorded: watching it hides races
// (docs/recorder.md).
#include "base/memory.h"
#include "record/condition_setter.h"
#include "record/cubin.h"
#include "record/drain.h"
#include "record/early.h"
#include "record/embed.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/opaque.h"
#include "record/recorder.h"
#include "record/sanitizer_path.h"
#include "record/source.h"
#include "record/watching.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GV_DEVICE_CODE

#include <sanitizer.h>

GV_EMBED(gv_patch_image, ".gravel.fatbin", GV_PATCH_FATBIN);
GV_EMBED(gv_patch_tensor_image, ".gravel.fatbin", GV_PATCH_TENSOR_FATBIN);
GV_EMBED(gv_drain_image, ".gravel.fatbin", GV_DRAIN_FATBIN);
GV_EMBED(gv_hold_image, ".gravel.fatbin", GV_HOLD_FATBIN);

#define GV_SANITIZER_FUNCTIONS(F)     \
    F(sanitizerSubscribe)             \
    F(sanitizerUnsubscribe)           \
    F(sanitizerEnableCallback)        \
    F(sanitizerEnableDomain)          \
    F(sanitizerGetResultString)       \
    F(sanitizerAddPatches)            \
    F(sanitizerPatchInstructions)     \
    F(sanitizerPatchModule)           \
    F(sanitizerUnpatchModule)         \
    F(sanitizerSetLaunchCallbackData) \
    F(sanitizerGetFunctionPcAndSize)

static struct {
#define GV_SANITIZER_FIELD(name) __typeof__(name) *name;
    GV_SANITIZER_FUNCTIONS(GV_SANITIZER_FIELD)
} api;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Sanitizer_SubscriberHandle subscriber;
static bool ready;
static gv_sanitizer_choice library; // the one in use
static char why_not[512] =
    "the driver did not load gravel's injection library (CUDA_INJECTION64_PATH): run the program "
    "through `gravel run`";

static const char *result_text(SanitizerResult result)
{
    const char *text = NULL;
    if (api.sanitizerGetResultString && api.sanitizerGetResultString(result, &text) == SANITIZER_SUCCESS && text)
        return text;
    return "unknown error";
}

// ---- Modules -------------------------------------------------------------------------------------------------

// A kernel with instructions the Sanitizer does not report.
typedef struct blind_function {
    char *name;
    unsigned flags;
} blind_function;

typedef struct module_row {
    CUcontext context;
    CUmodule module;
    bool scanned;
    bool patched;
    bool tensor_loads;     // the Sanitizer took the patch for them, too
    unsigned flags;        // of every kernel of the module
    blind_function *blind; // sorted by name
    size_t blind_count, blind_capacity;
    char **variables; // their names
    size_t variable_count, variable_capacity;
    bool all_variables; // the list is whole
} module_row;

static module_row *modules;
static size_t module_count, module_capacity;

// Set while this thread loads device code of our own, which is not the program's to be patched.
static __thread bool loading_own __attribute__((tls_model("initial-exec")));

static void blind(const char *name, unsigned flags, void *user)
{
    module_row *row = user;
    char *copy = name ? gv_strdup(name) : NULL;
    if (!name) {
        row->flags |= flags;
    } else if (copy && GV_GROW(row->blind, row->blind_capacity, row->blind_count + 1)) {
        row->blind[row->blind_count++] = (blind_function){copy, flags};
    } else {
        gv_free(copy);
        row->scanned = false;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const blind_function *)a)->name, ((const blind_function *)b)->name);
}

static void variable(const char *name, void *user)
{
    module_row *row = user;
    char *copy = gv_strdup(name);
    if (copy && GV_GROW(row->variables, row->variable_capacity, row->variable_count + 1)) {
        row->variables[row->variable_count++] = copy;
    } else {
        gv_free(copy);
        row->all_variables = false;
    }
}

static void module_loaded(const Sanitizer_ResourceModuleData *data)
{
    module_row row = {.context = data->context, .module = data->module, .scanned = true};
    if (!data->pCubin || !gv_cubin_scan(data->pCubin, data->cubinSize, blind, &row))
        row.scanned = false;
    row.all_variables = true;
    if (!data->pCubin || !gv_cubin_variables(data->pCubin, data->cubinSize, variable, &row))
        row.all_variables = false;
    if (row.blind_count)
        qsort(row.blind, row.blind_count, sizeof *row.blind, by_name);
    gv_waits_add(data->context, data->module, data->pCubin, data->cubinSize);
    pthread_mutex_lock(&lock);
    if (GV_GROW(modules, module_capacity, module_count + 1))
        modules[module_count++] = row;
    else
        gv_note_once(GV_NOTE_FAILURE, "module", "out of memory: a module's kernels are not recorded");
    pthread_mutex_unlock(&lock);
}

// Drops the rows of a module, or of all modules of a context.
static void drop_modules(CUmodule module, CUcontext context)
{
    gv_waits_drop(module, context);
    pthread_mutex_lock(&lock);
    for (size_t i = module_count; i-- > 0;) {
        if (modules[i].module != module && modules[i].context != context)
            continue;
        for (size_t j = 0; j < modules[i].blind_count; j++)
            gv_free(modules[i].blind[j].name);
        gv_free(modules[i].blind);
        for (size_t j = 0; j < modules[i].variable_count; j++)
            gv_free(modules[i].variables[j]);
        gv_free(modules[i].variables);
        modules[i] = modules[--module_count];
    }
    pthread_mutex_unlock(&lock);
}

// The flags of a kernel; whether the patch for tensor loads is in its module.
static unsigned function_flags(CUfunction function, const char *name, bool *tensor_loads)
{
    CUmodule module = NULL;
    unsigned flags = GV_FUNCTION_UNSCANNED;
    *tensor_loads = false;
    if (gv_cuda.cuFuncGetModule(&module, function) != CUDA_SUCCESS)
        return flags;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count; i++) {
        const module_row *row = &modules[i];
        if (row->module != module)
            continue;
        const blind_function key = {(char *)name, 0};
        const blind_function *found =
            name && row->blind_count ? bsearch(&key, row->blind, row->blind_count, sizeof key, by_name) : NULL;
        flags = row->flags | (row->scanned ? 0 : GV_FUNCTION_UNSCANNED) | (found ? found->flags : 0);
        *tensor_loads = row->patched && row->tensor_loads;
        break;
    }
    pthread_mutex_unlock(&lock);
    return flags;
}

unsigned gv_sanitizer_function_flags(CUfunction function, const char *name)
{
    bool tensor_loads;
    return ready ? function_flags(function, name, &tensor_loads) : 0;
}

static bool add_unknown(gv_variables *variables, CUmodule module)
{
    if (!GV_GROW(variables->unknown, variables->unknown_capacity, variables->unknown_count + 1))
        return false;
    variables->unknown[variables->unknown_count++] = module;
    return true;
}

// The names of the variables, copied out of the table: the driver, which tells their addresses, may load the module
// then and call back.
typedef struct named_variable {
    CUmodule module;
    char *name;
} named_variable;

static bool list_names(CUcontext context, named_variable **names, size_t *count, gv_variables *variables)
{
    bool enough = true;
    size_t capacity = 0;
    *names = NULL;
    *count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count && enough; i++) {
        const module_row *row = &modules[i];
        if (row->context != context)
            continue;
        variables->heap |= (row->flags & GV_FUNCTION_DEVICE_HEAP) != 0;
        if (!row->all_variables)
            enough = add_unknown(variables, row->module);
        for (size_t j = 0; j < row->variable_count && enough; j++) {
            char *copy = gv_strdup(row->variables[j]);
            enough = copy && GV_GROW(*names, capacity, *count + 1);
            if (enough)
                (*names)[(*count)++] = (named_variable){row->module, copy};
            else
                gv_free(copy);
        }
    }
    pthread_mutex_unlock(&lock);
    return enough;
}

bool gv_sanitizer_variables(CUcontext context, gv_variables *variables)
{
    named_variable *names = NULL;
    size_t count = 0;
    bool enough = list_names(context, &names, &count, variables);
    for (size_t i = 0; i < count; i++) {
        CUdeviceptr address = 0;
        size_t size = 0;
        if (!enough) {
        } else if (gv_cuda.cuModuleGetGlobal(&address, &size, names[i].module, names[i].name) == CUDA_SUCCESS) {
            enough = GV_GROW(variables->items, variables->capacity, variables->count + 1);
            if (enough)
                variables->items[variables->count++] = (gv_variable){names[i].module, address, size};
        } else {
            enough = add_unknown(variables, names[i].module);
        }
        gv_free(names[i].name);
    }
    gv_free(names);
    return enough;
}

void gv_sanitizer_loading_own(bool begins)
{
    loading_own = begins;
}

// ---- Callbacks -----------------------------------------------------------------------------------------------

// The replay under way. Only one thread arms at a time.
static struct {
    CUcontext context;
    CUstream stream;
    gv_drain *drain;
    bool tensor_patch; // there is a patch for tensor loads in the context
    bool waits;        // kernels are watched at their grid-dependency waits
    gv_watching *watching;
    CUfunction watched;   // the kernel that is, or was last, or NULL
    bool at_wait;         // it has not come to sanitizer_after yet
    gv_node_ranges early; // what the last one accessed before its wait
    bool early_unknown;   // a part of that is not known
    bool nothing_seen;    // of the last kernel
    bool seen;            // the launch between before() and after() came by
    CUmodule module;      // the module of that launch
    bool set_failed;
    bool graphs; // kernels in graphs are recorded too
} armed;

// Set for good when a tensor copy has been reported in this process. Until then no silence about one is believed.
static bool tensor_copies_are_reported;
static __thread bool recording __attribute__((tls_model("initial-exec")));

// Every launch into the armed context is told its user data: a launch that is not told would run with stale data, and
// so would a kernel in a graph.
static void launch_begins(const Sanitizer_LaunchData *data)
{
    void *table = recording && armed.drain ? (void *)gv_drain_table(armed.drain) : NULL;
    SanitizerResult result = api.sanitizerSetLaunchCallbackData(data->hLaunch, data->function, data->hStream, table);
    if (recording) {
        armed.seen = true;
        armed.module = data->module;
        armed.set_failed = result != SANITIZER_SUCCESS;
    }
}

static void graph_node_begins(const Sanitizer_GraphNodeLaunchData *data)
{
    if (data->nodeType == CU_GRAPH_NODE_TYPE_KERNEL &&
        (data->launchData.context == armed.context || data->launchData.apiContext == armed.context))
        launch_begins(&data->launchData);
}

static void context_destroyed(CUcontext context);

static void callback(void *user, Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void *data)
{
    if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_BEGIN) {
        if (((const Sanitizer_LaunchData *)data)->context == armed.context)
            launch_begins(data);
    } else if (domain == SANITIZER_CB_DOMAIN_GRAPHS && id == SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN)
        graph_node_begins(data);
    else if (domain == SANITIZER_CB_DOMAIN_RESOURCE && id == SANITIZER_CBID_RESOURCE_MODULE_LOADED && !loading_own)
        module_loaded(data);
    else if (domain == SANITIZER_CB_DOMAIN_RESOURCE && id == SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING)
        drop_modules(((const Sanitizer_ResourceModuleData *)data)->module, NULL);
    else if (domain == SANITIZER_CB_DOMAIN_RESOURCE && id == SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING)
        context_destroyed(((const Sanitizer_ResourceContextData *)data)->context);
}

// Loads one library and subscribes to it. False with the reason in why_not.
static bool start(const gv_sanitizer_choice *choice)
{
    void *handle = dlopen(choice->path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(why_not, sizeof why_not, "%s", dlerror());
        return false;
    }
#define GV_SANITIZER_FIND(name)                                                     \
    *(void **)&api.name = dlsym(handle, #name);                                     \
    if (!api.name) {                                                                \
        snprintf(why_not, sizeof why_not, "%.300s has no %s", choice->path, #name); \
        dlclose(handle);                                                            \
        return false;                                                               \
    }
    GV_SANITIZER_FUNCTIONS(GV_SANITIZER_FIND)
    // Single callbacks and not whole domains: each call back into us costs the program time.
    static const Sanitizer_CallbackId resources[] = {SANITIZER_CBID_RESOURCE_MODULE_LOADED,
                                                     SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
                                                     SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING};
    SanitizerResult result = api.sanitizerSubscribe(&subscriber, callback, NULL);
    for (size_t i = 0; i < sizeof resources / sizeof *resources && result == SANITIZER_SUCCESS; i++)
        result = api.sanitizerEnableCallback(1, subscriber, SANITIZER_CB_DOMAIN_RESOURCE, resources[i]);
    if (result != SANITIZER_SUCCESS)
        snprintf(why_not, sizeof why_not, "the Sanitizer %.300s refused to start: %s", choice->path,
                 result_text(result));
    // A library that has begun to work stays loaded, also when it refused.
    return result == SANITIZER_SUCCESS;
}

static void initialize(void)
{
    static gv_sanitizer_choice choices[4];
    char tried[1024] = "";
    const char *arm = getenv("GRAVEL_ARM");
    if (!getenv("GRAVEL_TRACE") || (arm && strcmp(arm, "none") == 0)) {
        snprintf(why_not, sizeof why_not, "arming was not asked for");
        return;
    }
    size_t count = gv_sanitizer_find_all(choices, sizeof choices / sizeof *choices, tried, sizeof tried);
    if (!count)
        snprintf(why_not, sizeof why_not,
                 "NVIDIA's Sanitizer library (libsanitizer-public.so) was not found; tried %.300s. Set "
                 "GRAVEL_SANITIZER to its path",
                 tried);
    // A newer library may refuse an older driver that another one still works with.
    for (size_t i = 0; i < count && !ready; i++) {
        library = choices[i];
        ready = start(&choices[i]);
    }
}

// Called by the driver inside cuInit. Its return value is not an error code; other injection libraries return 1.
GV_EXPORT int InitializeInjection(void);
int InitializeInjection(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        initialize();
    return 1;
}

bool gv_source_sanitizer_ready(const char **why)
{
    *why = why_not;
    return ready;
}

const char *gv_sanitizer_library(void)
{
    return library.path;
}

// ---- The source ----------------------------------------------------------------------------------------------

// What is patched, and with which function of patch.cu. A kind this Sanitizer does not know is left out; an instruction
// of that kind would then be unseen, and only the first kind is one that no kernel does without. Tensor loads come on
// top where the library in use reports them. Tensor stores and reductions have no patch: releases up to 13.5 name a
// kind for stores (44) but neither declare its callback nor contain it, and none for reductions.
static const struct {
    Sanitizer_InstructionId instruction;
    const char *function;
    bool needed;
} patches[] = {
    {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "gravel_global", true},
    {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "gravel_copy_async", true},
    {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, "gravel_bulk_read", true},
    {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, "gravel_bulk_write", true},
    {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, "gravel_bulk_reduce", true},
    // Only where kernels are watched at their grid-dependency waits.
    {SANITIZER_INSTRUCTION_BLOCK_ENTER, "gravel_enter", false},
    {SANITIZER_INSTRUCTION_BLOCK_EXIT, "gravel_exit", false},
};

// SANITIZER_INSTRUCTION_TMA_LOAD. Given by number, so that what a build can do depends on the library it meets at run
// time and not on the headers it was compiled with; where the headers have the name, its value is checked.
#define TMA_LOAD ((Sanitizer_InstructionId)43)
#ifdef GV_SANITIZER_TENSOR_COPIES
_Static_assert(SANITIZER_INSTRUCTION_TMA_LOAD == TMA_LOAD, "the number of an instruction kind has changed");
#endif

// Contexts into which the patches and the drain kernels have been loaded; they stay there until the context goes.
typedef struct prepared_context {
    CUcontext context;
    gv_drain *drain;
    gv_watching *watching; // NULL until it is needed
    bool tensor_patch;     // the patch for tensor loads is there, too
} prepared_context;

static prepared_context *prepared;
static size_t prepared_count, prepared_capacity;

// Answers with what is in the context once it is prepared.
static gv_status prepare(CUcontext context, prepared_context *found, gv_error *error)
{
    bool done = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < prepared_count && !done; i++) {
        done = prepared[i].context == context;
        *found = prepared[i];
    }
    pthread_mutex_unlock(&lock);
    if (done)
        return GV_OK;
    *found = (prepared_context){.context = context};
    loading_own = true;
    SanitizerResult result = api.sanitizerAddPatches(gv_patch_image, context);
    gv_status status =
        result == SANITIZER_SUCCESS
            ? gv_drain_create(gv_drain_image, &found->drain, error)
            : gv_fail(error, GV_ERR_IO, "the Sanitizer does not load gravel's patches: %s", result_text(result));
    // A release that does not know these loads is not asked: its answer to an unknown number is nowhere promised.
    if (status == GV_OK && library.tensor_copies)
        found->tensor_patch = api.sanitizerAddPatches(gv_patch_tensor_image, context) == SANITIZER_SUCCESS;
    loading_own = false;
    if (status != GV_OK)
        return status;
    pthread_mutex_lock(&lock);
    bool kept = GV_GROW(prepared, prepared_capacity, prepared_count + 1);
    if (kept)
        prepared[prepared_count++] = *found;
    pthread_mutex_unlock(&lock);
    if (kept)
        return GV_OK;
    gv_drain_free(found->drain);
    return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
}

// A later context may have the same handle, without our code in it.
static void context_destroyed(CUcontext context)
{
    drop_modules(NULL, context);
    gv_opaque_forget(context);
    gv_condition_setter_forget(context);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < prepared_count; i++)
        if (prepared[i].context == context) {
            gv_drain_forget(prepared[i].drain);
            gv_watching_forget(prepared[i].watching);
            prepared[i--] = prepared[--prepared_count];
        }
    pthread_mutex_unlock(&lock);
}

static bool may_load_tensors(CUmodule module)
{
    bool may = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count && !may; i++) {
        const module_row *row = &modules[i];
        if (row->module != module)
            continue;
        may = !row->scanned || row->flags & GV_FUNCTION_TENSOR_LOAD;
        for (size_t j = 0; j < row->blind_count && !may; j++)
            may = row->blind[j].flags & GV_FUNCTION_TENSOR_LOAD;
    }
    pthread_mutex_unlock(&lock);
    return may;
}

static bool patch(CUmodule module, bool *tensor_loads)
{
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        bool for_waits = patches[i].instruction == SANITIZER_INSTRUCTION_BLOCK_ENTER ||
                         patches[i].instruction == SANITIZER_INSTRUCTION_BLOCK_EXIT;
        if (for_waits && !armed.waits)
            continue;
        if (api.sanitizerPatchInstructions(patches[i].instruction, module, patches[i].function) != SANITIZER_SUCCESS &&
            patches[i].needed)
            return false;
    }
    // Only where it is of use: modules without such loads are patched as if there were no such patch.
    *tensor_loads = armed.tensor_patch && may_load_tensors(module) &&
                    api.sanitizerPatchInstructions(TMA_LOAD, module, "gravel_tensor_load") == SANITIZER_SUCCESS;
    return api.sanitizerPatchModule(module) == SANITIZER_SUCCESS;
}

// The modules of a context, or the patched ones. The Sanitizer is never called under `lock`: it calls back into
// module_loaded with locks of its own held.
static CUmodule *list_modules(CUcontext context, bool patched, size_t *count)
{
    pthread_mutex_lock(&lock);
    CUmodule *list = gv_calloc(module_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; list && i < module_count; i++)
        if (modules[i].context == context && (!patched || modules[i].patched))
            list[(*count)++] = modules[i].module;
    pthread_mutex_unlock(&lock);
    return list;
}

static void set_patched(CUmodule module, bool patched, bool tensor_loads)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count; i++)
        if (modules[i].module == module) {
            modules[i].patched = patched;
            modules[i].tensor_loads = tensor_loads;
        }
    pthread_mutex_unlock(&lock);
}

static void unpatch_all(void)
{
    size_t count = 0;
    CUmodule *list = list_modules(armed.context, true, &count);
    for (size_t i = 0; i < count; i++) {
        SanitizerResult result = api.sanitizerUnpatchModule(list[i]);
        if (result != SANITIZER_SUCCESS)
            gv_note_once(GV_NOTE_FAILURE, "unpatch",
                         "a module could not be unpatched: %s. Its kernels run slower from here on",
                         result_text(result));
        set_patched(list[i], false, false);
    }
    gv_free(list);
}

static void sanitizer_close(void)
{
    recording = false; // a node that failed never came to sanitizer_after
    api.sanitizerEnableCallback(0, subscriber, SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN);
    if (armed.graphs)
        api.sanitizerEnableDomain(0, subscriber, SANITIZER_CB_DOMAIN_GRAPHS);
    unpatch_all();
    if (armed.watching)
        gv_watching_close(armed.watching);
    if (armed.drain)
        gv_drain_close(armed.drain);
    gv_node_ranges_free(&armed.early);
    memset(&armed, 0, sizeof armed);
}

static void patch_all(void)
{
    size_t count = 0;
    CUmodule *list = list_modules(armed.context, false, &count);
    for (size_t i = 0; i < count; i++) {
        bool tensor_loads = false, patched = patch(list[i], &tensor_loads);
        set_patched(list[i], patched, tensor_loads);
    }
    gv_free(list);
}

// What kernels are watched with at their grid-dependency waits, in the current context; without it they are recorded
// all the same.
static gv_watching *find_watching(CUcontext context)
{
    gv_watching *watching = NULL;
    gv_error error = {0};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < prepared_count && !watching; i++)
        if (prepared[i].context == context)
            watching = prepared[i].watching;
    pthread_mutex_unlock(&lock);
    if (watching)
        return watching;
    loading_own = true;
    gv_status status = gv_watching_create(gv_hold_image, &GV_HOLD_LIMITS, &watching, &error);
    loading_own = false;
    if (status != GV_OK) {
        gv_note_once(GV_NOTE_FAILURE, "wait", "what kernels do before their grid-dependency waits is not observed: %s",
                     error.text);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < prepared_count; i++)
        if (prepared[i].context == context)
            prepared[i].watching = watching;
    pthread_mutex_unlock(&lock);
    return watching;
}

static bool device_has_waits(void)
{
    CUdevice device = 0;
    int major = 0;
    return gv_cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           gv_cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
           major >= 9;
}

static gv_status sanitizer_open(CUcontext context, CUstream stream, bool waits, gv_error *error)
{
    memset(&armed, 0, sizeof armed);
    prepared_context ready_context;
    gv_status status = prepare(context, &ready_context, error);
    if (status == GV_OK)
        status = gv_drain_open(ready_context.drain, gv_live_bytes(), stream, error);
    if (status != GV_OK)
        return status;
    armed.drain = ready_context.drain;
    armed.tensor_patch = ready_context.tensor_patch;
    armed.context = context;
    armed.stream = stream;
    if (waits && device_has_waits())
        armed.watching = find_watching(context);
    armed.waits = armed.watching != NULL;
    SanitizerResult result =
        api.sanitizerEnableCallback(1, subscriber, SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN);
    if (result != SANITIZER_SUCCESS) {
        sanitizer_close();
        return gv_fail(error, GV_ERR_IO, "the Sanitizer does not report launches: %s", result_text(result));
    }
    patch_all();
    return GV_OK;
}

// The whole domain: that is what was seen to work, on wrapper graphs made while modules were patched and it was on.
static gv_status sanitizer_open_graphs(gv_error *error)
{
    SanitizerResult result = api.sanitizerEnableDomain(1, subscriber, SANITIZER_CB_DOMAIN_GRAPHS);
    armed.graphs = result == SANITIZER_SUCCESS;
    return armed.graphs
               ? GV_OK
               : gv_fail(error, GV_ERR_IO, "the Sanitizer does not report kernels in graphs: %s", result_text(result));
}

// A kernel whose module could not be patched again is told by sanitizer_after.
static gv_status sanitizer_resume(gv_error *error)
{
    patch_all();
    return GV_OK;
}

static gv_status sanitizer_before(gv_error *error)
{
    armed.seen = armed.set_failed = false;
    recording = true;
    return GV_OK;
}

static bool is_patched(CUmodule module)
{
    bool patched = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module_count && !patched; i++)
        patched = modules[i].module == module && modules[i].patched;
    pthread_mutex_unlock(&lock);
    return patched;
}

// Keeps what a watched kernel did before its wait until sanitizer_wait_seen: it may run again before, unwatched.
static bool take_early(gv_node_ranges *ranges, unsigned flags)
{
    armed.at_wait = false;
    gv_node_ranges_clear(&armed.early);
    bool enough = gv_split_early(ranges, &armed.early);
    if (!enough)
        gv_node_ranges_clear(ranges);
    armed.early_unknown = (flags & GV_TABLE_EARLY_MAP) != 0;
    armed.nothing_seen =
        !(ranges->count[GV_ACCESS_READ] || ranges->count[GV_ACCESS_WRITE] || ranges->count[GV_ACCESS_ATOMIC]);
    return enough;
}

// The words of a map that is not understood, for whoever reports it.
static void show_unknown_map(void)
{
    const gv_logged_map *map = gv_drain_unknown(armed.drain);
    char words[GV_TENSOR_MAP_WORDS * 17 + 1] = "";
    for (int i = 0; map && i < GV_TENSOR_MAP_WORDS; i++)
        snprintf(words + 17 * i, sizeof words - 17 * (size_t)i, " %016llx", (unsigned long long)map->words[i]);
    if (map)
        gv_note_once(GV_NOTE_INFO, "tensor map",
                     "a kernel copies by a tensor map of a form that gravel does not know, so that only upper bounds "
                     "of what it touches are recorded. Please report its words (docs/tensor-maps.md):%s",
                     words);
}

static gv_status sanitizer_after(gv_node_ranges *ranges, gv_node_ranges *extents, gv_error *error)
{
    recording = false;
    unsigned flags = 0;
    if (armed.at_wait)
        gv_watching_end(armed.watching);
    gv_status status = gv_drain_run(armed.drain, armed.stream, ranges, extents, &flags, error);
    tensor_copies_are_reported |= (flags & GV_TABLE_TENSOR_SEEN) != 0;
    if (armed.at_wait && !take_early(ranges, flags))
        return gv_fail(error, GV_ERR_MEMORY, "memory for its access set ran out");
    if (status != GV_OK)
        return status;
    if (flags & GV_TABLE_MAP_UNKNOWN) {
        show_unknown_map();
        return gv_fail(error, GV_ERR_FORMAT, "it copies by a tensor map of a form that is not known");
    }
    if (flags & GV_TABLE_MAPS_OVERFLOW)
        return gv_fail(error, GV_ERR_LIMIT, "it copies by more than %d im2col tensor maps", (int)GV_LOGGED_MAPS);
    if (!armed.seen || armed.set_failed)
        return gv_fail(error, GV_ERR_MISSING, "the Sanitizer did not report its launch");
    if (!is_patched(armed.module))
        return gv_fail(error, GV_ERR_MISSING, "its module could not be patched");
    return GV_OK;
}

// ---- Grid-dependency waits -----------------------------------------------------------------------------------

static void sanitizer_expect_wait(CUfunction function, bool *held)
{
    CUmodule module = NULL;
    const char *name = NULL;
    uint64_t base = 0, size = 0;
    *held = false;
    armed.watched = NULL;
    armed.at_wait = false;
    if (!armed.watching || gv_cuda.cuFuncGetModule(&module, function) != CUDA_SUCCESS ||
        gv_cuda.cuFuncGetName(&name, function) != CUDA_SUCCESS)
        return;
    if (api.sanitizerGetFunctionPcAndSize(module, name, &base, &size) != SANITIZER_SUCCESS)
        base = size = 0;
    armed.watched = function;
    armed.at_wait = true;
    gv_watching_begin(armed.watching, gv_drain_table(armed.drain) + offsetof(gv_access_table, watch), armed.stream,
                      module, name, base, size, held);
}

static void sanitizer_release(bool launched)
{
    gv_watching_release(armed.watching, launched);
}

static void sanitizer_wait_seen(gv_wait_observation *observation)
{
    const char *name = NULL;
    if (!armed.watched) {
        gv_wait_unknown(observation, armed.watching ? "the driver does not tell its name and module"
                                                    : "grid-dependency waits cannot be observed on this device");
        return;
    }
    gv_cuda.cuFuncGetName(&name, armed.watched);
    gv_watching_judge(armed.watching, gv_sanitizer_blind_flags(armed.watched, name), observation);
    if (observation->wait != GV_GRID_WAIT_DONE)
        return;
    gv_node_ranges kept = observation->early;
    observation->early = armed.early;
    armed.early = kept;
    // Where nothing at all was reported, that nothing came before the wait says nothing.
    observation->unseen_come_after &= !armed.nothing_seen;
    if (armed.early_unknown)
        gv_wait_unknown(observation, "it copies by an im2col tensor map before its grid-dependency wait");
}

unsigned gv_sanitizer_blind_flags(CUfunction function, const char *name)
{
    bool tensor_loads;
    if (!ready)
        return 0;
    unsigned flags = function_flags(function, name, &tensor_loads);
    if (!tensor_loads || !tensor_copies_are_reported)
        return flags;
    flags &= ~(unsigned)GV_FUNCTION_TENSOR_LOAD;
    // The patch reads the map at each copy: to it, maps that change are like others.
    if (!(flags & (GV_FUNCTION_TENSOR_STORE | GV_FUNCTION_TENSOR_REDUCE)))
        flags &= ~(unsigned)(GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_REPLACE);
    return flags;
}

#else // built without nvcc or the Sanitizer's headers

static gv_status sanitizer_open(CUcontext context, CUstream stream, bool waits, gv_error *error)
{
    return gv_fail(error, GV_ERR_MISSING, "built without device code");
}

static gv_status sanitizer_before(gv_error *error)
{
    return gv_fail(error, GV_ERR_MISSING, "built without device code");
}

static gv_status sanitizer_after(gv_node_ranges *ranges, gv_node_ranges *extents, gv_error *error)
{
    return gv_fail(error, GV_ERR_MISSING, "built without device code");
}

static void sanitizer_close(void)
{
}

static gv_status sanitizer_resume(gv_error *error)
{
    return GV_OK;
}

static void sanitizer_expect_wait(CUfunction function, bool *held)
{
}

static void sanitizer_release(bool launched)
{
}

static void sanitizer_wait_seen(gv_wait_observation *observation)
{
    gv_wait_unknown(observation, "built without device code");
}

#define sanitizer_open_graphs NULL
#define unpatch_all           NULL

bool gv_source_sanitizer_ready(const char **why)
{
    *why = "this gravel was built without nvcc or the Sanitizer's headers and records no accesses on a GPU";
    return false;
}

unsigned gv_sanitizer_function_flags(CUfunction function, const char *name)
{
    return 0;
}

unsigned gv_sanitizer_blind_flags(CUfunction function, const char *name)
{
    return 0;
}

const char *gv_sanitizer_library(void)
{
    return "";
}

bool gv_sanitizer_variables(CUcontext context, gv_variables *variables)
{
    return true;
}

void gv_sanitizer_loading_own(bool begins)
{
}

#endif

const gv_recording_source gv_source_sanitizer = {.id = GV_SOURCE_SANITIZER,
                                                 .open = sanitizer_open,
                                                 .expect_wait = sanitizer_expect_wait,
                                                 .before = sanitizer_before,
                                                 .release = sanitizer_release,
                                                 .after = sanitizer_after,
                                                 .wait_seen = sanitizer_wait_seen,
                                                 .open_graphs = sanitizer_open_graphs,
                                                 .add_setter = gv_condition_setter_add,
                                                 .suspend = unpatch_all,
                                                 .resume = sanitizer_resume,
                                                 .close = sanitizer_close};

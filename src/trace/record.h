// The record types of a trace file: one table from which the structs, the writer's encoders and the reader's
// decoders are generated. docs/trace-format.md describes the file for a reader outside this project.
//
// A record is the CBOR array [type, {key: value, ...}] with unsigned integer keys. A field whose value is zero or
// empty is left out; an unknown key and an unknown type are skipped, so that a reader of the same major version
// reads what a later minor version wrote.
#ifndef GV_TRACE_RECORD_H
#define GV_TRACE_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum { GV_TRACE_MAJOR = 1, GV_TRACE_MINOR = 2 };

// Text inside the decoded frame, not NUL-terminated; valid as long as the buffer it points into.
typedef struct gv_text {
    const char *data;
    size_t length;
} gv_text;

// Bytes inside the decoded frame; valid as long as the buffer they point into.
typedef struct gv_bytes {
    const uint8_t *data;
    size_t length;
} gv_bytes;

// An array of unsigned integers. In the file a byte string of LEB128 numbers; the reader owns the decoded array.
typedef struct gv_numbers {
    const uint64_t *items;
    size_t count;
} gv_numbers;

// ---- The table ----------------------------------------------------------------------------------------------
// GV_RECORDS(RECORD): RECORD(type number, name, field list macro).
// Field lists: FIELD(key, kind, name), kind one of NUMBER (uint64_t), TEXT, BYTES, NUMBERS.
// Numbers are never re-used; a field is never given another meaning.
//
// Ids (string, stack, module, context, stream, event, function, allocation, graph, node, exec, launch) are given by
// the recorder, count up from 1 within the file, and are never re-used, whatever the driver does with its handles.
// 0 means "none". A definition stands before its first use.
#define GV_RECORDS(RECORD)                             \
    RECORD(0, frame, GV_FRAME_FIELDS)                  \
    RECORD(1, process, GV_PROCESS_FIELDS)              \
    RECORD(2, string, GV_STRING_FIELDS)                \
    RECORD(3, module, GV_MODULE_FIELDS)                \
    RECORD(4, stack, GV_STACK_FIELDS)                  \
    RECORD(5, symbol, GV_SYMBOL_FIELDS)                \
    RECORD(6, context, GV_CONTEXT_FIELDS)              \
    RECORD(7, stream, GV_STREAM_FIELDS)                \
    RECORD(8, function, GV_FUNCTION_FIELDS)            \
    RECORD(9, allocation, GV_ALLOCATION_FIELDS)        \
    RECORD(10, operation, GV_OPERATION_FIELDS)         \
    RECORD(11, graph, GV_GRAPH_FIELDS)                 \
    RECORD(12, node, GV_NODE_FIELDS)                   \
    RECORD(13, edges, GV_EDGES_FIELDS)                 \
    RECORD(14, exec, GV_EXEC_FIELDS)                   \
    RECORD(15, armed, GV_ARMED_FIELDS)                 \
    RECORD(16, access, GV_ACCESS_FIELDS)               \
    RECORD(17, note, GV_NOTE_FIELDS)                   \
    RECORD(18, end, GV_END_FIELDS)                     \
    RECORD(19, execution, GV_EXECUTION_FIELDS)         \
    RECORD(20, checked, GV_CHECKED_FIELDS)             \
    RECORD(21, difference, GV_DIFFERENCE_FIELDS)       \
    RECORD(22, setting, GV_SETTING_FIELDS)             \
    RECORD(24, region, GV_REGION_FIELDS)               \
    RECORD(25, region_step, GV_REGION_STEP_FIELDS)     \
    RECORD(26, region_end, GV_REGION_END_FIELDS)       \
    RECORD(27, kernel_access, GV_KERNEL_ACCESS_FIELDS) \
    RECORD(28, perturbed, GV_PERTURBED_FIELDS)         \
    RECORD(29, effect, GV_EFFECT_FIELDS)               \
    RECORD(32, probe, GV_PROBE_FIELDS)                 \
    RECORD(33, declared, GV_DECLARED_FIELDS)           \
    RECORD(34, fix, GV_FIX_FIELDS)                     \
    RECORD(35, fix_applied, GV_FIX_APPLIED_FIELDS)     \
    RECORD(36, node_time, GV_NODE_TIME_FIELDS)

// Opens every zstd frame. `sequence` counts frames from 0, `first_record` the records of all earlier frames (frame
// records left out), so that a reader notices a missing frame.
#define GV_FRAME_FIELDS(FIELD)     \
    FIELD(1, NUMBER, major)        \
    FIELD(2, NUMBER, minor)        \
    FIELD(3, NUMBER, pid)          \
    FIELD(4, NUMBER, sequence)     \
    FIELD(5, NUMBER, first_record) \
    FIELD(6, NUMBER, time_ns) /* CLOCK_REALTIME */

// The traced process. Written once, first record of frame 0; a forked child's file has its own.
#define GV_PROCESS_FIELDS(FIELD)                                                                                 \
    FIELD(1, NUMBER, pid)                                                                                        \
    FIELD(2, NUMBER, ppid)                                                                                       \
    FIELD(3, NUMBER, time_ns)                                                                                    \
    FIELD(4, TEXT, executable)                                                                                   \
    FIELD(5, TEXT, command_line) /* arguments separated by spaces */                                             \
    FIELD(6, TEXT, host)                                                                                         \
    FIELD(7, TEXT, gravel_version)                                                                               \
    FIELD(8, NUMBER, driver_version) /* as cuDriverGetVersion, 13000 for 13.0 */                                 \
    FIELD(9, TEXT, driver)           /* "cuda 580.159.04" or "soft" */                                           \
    FIELD(10, TEXT, access_source)   /* what arming records with: "sanitizer 13.0.85", "soft", "none: reason" */ \
    FIELD(11, TEXT, options)         /* the recorder's options as given, for the report's head */

#define GV_STRING_FIELDS(FIELD) \
    FIELD(1, NUMBER, id)        \
    FIELD(2, TEXT, text)

// A loaded object file; host frames are addresses relative to it.
#define GV_MODULE_FIELDS(FIELD) \
    FIELD(1, NUMBER, id)        \
    FIELD(2, TEXT, path)        \
    FIELD(3, BYTES, build_id)

// A call stack, innermost frame first. `host`: pairs (module id, address within the module as in its ELF file; a
// return address, so look up address - 1). `python`: triples (file string id, function string id, line).
#define GV_STACK_FIELDS(FIELD) \
    FIELD(1, NUMBER, id)       \
    FIELD(2, NUMBERS, host)    \
    FIELD(3, NUMBERS, python)

// What a host frame resolves to; appended by `gravel run` after the process has ended, so that a trace can be read
// on a machine without its binaries. (module, address) as in the stack record.
#define GV_SYMBOL_FIELDS(FIELD)                              \
    FIELD(1, NUMBER, module)                                 \
    FIELD(2, NUMBER, address)                                \
    FIELD(3, NUMBER, function) /* string id */               \
    FIELD(4, NUMBER, file)     /* string id; 0: not known */ \
    FIELD(5, NUMBER, line)

#define GV_CONTEXT_FIELDS(FIELD) \
    FIELD(1, NUMBER, id)         \
    FIELD(2, NUMBER, device)     \
    FIELD(3, TEXT, device_name)  \
    FIELD(4, NUMBER, compute_capability) /* 90 for 9.0 */

// A stream. Every context has one legacy default stream and, for each thread that uses it, a per-thread default
// stream; each gets an id of its own.
#define GV_STREAM_FIELDS(FIELD)                      \
    FIELD(1, NUMBER, id)                             \
    FIELD(2, NUMBER, context)                        \
    FIELD(3, NUMBER, kind) /* enum gv_stream_kind */ \
    FIELD(4, NUMBER, priority)

// A kernel. `flags`: enum gv_function_flag.
#define GV_FUNCTION_FIELDS(FIELD)                               \
    FIELD(1, NUMBER, id)                                        \
    FIELD(2, TEXT, name) /* as the driver gives it (mangled) */ \
    FIELD(3, NUMBER, flags)

// A life of an address range, from its allocation on; it ends with an operation of kind FREE that names it.
#define GV_ALLOCATION_FIELDS(FIELD)                                                      \
    FIELD(1, NUMBER, id)                                                                 \
    FIELD(2, NUMBER, address)                                                            \
    FIELD(3, NUMBER, size)                                                               \
    FIELD(4, NUMBER, kind) /* enum gv_allocation_kind */                                 \
    FIELD(5, NUMBER, context)                                                            \
    FIELD(6, NUMBER, stack)                                                              \
    FIELD(7, NUMBER, operation) /* sequence number of the operation that allocated it */ \
    FIELD(8, TEXT, name)        /* symbol, tensor or region name where one is known */

// One call that matters for order, in the order in which the calls returned (the sequence numbers are dense over the
// process). Which of the fields a kind uses: see enum gv_operation_kind.
#define GV_OPERATION_FIELDS(FIELD)                  \
    FIELD(1, NUMBER, sequence)                      \
    FIELD(2, NUMBER, kind)                          \
    FIELD(3, NUMBER, thread) /* kernel thread id */ \
    FIELD(4, NUMBER, stream)                        \
    FIELD(5, NUMBER, object)                        \
    FIELD(6, NUMBER, address)                       \
    FIELD(7, NUMBER, size)                          \
    FIELD(8, NUMBER, value)                         \
    FIELD(9, NUMBER, flags)                         \
    FIELD(10, NUMBER, stack)                        \
    FIELD(11, NUMBERS, detail)

// A snapshot of a graph's nodes and edges, immutable: an update makes a new one. Followed by its nodes and edges.
#define GV_GRAPH_FIELDS(FIELD)                                                       \
    FIELD(1, NUMBER, id)                                                             \
    FIELD(2, NUMBER, origin) /* enum gv_graph_origin */                              \
    FIELD(3, NUMBER, nodes)  /* how many node records follow */                      \
    FIELD(4, NUMBER, edges)  /* how many edges follow */                             \
    FIELD(5, NUMBER, stack)  /* of the call that made the snapshot */                \
    FIELD(6, NUMBER, parent) /* graph id, for a child graph or a conditional body */ \
    FIELD(7, NUMBER, parent_node)                                                    \
    FIELD(8, TEXT, name)    /* given by the program or by --graph; else empty */     \
    FIELD(9, NUMBER, flags) /* enum gv_graph_flag */

// A node of the graph snapshot `graph`; `index` counts from 0 in the order in which the driver lists the nodes.
#define GV_NODE_FIELDS(FIELD)                                                                                    \
    FIELD(1, NUMBER, graph)                                                                                      \
    FIELD(2, NUMBER, index)                                                                                      \
    FIELD(3, NUMBER, kind)     /* enum gv_node_kind */                                                           \
    FIELD(4, NUMBER, function) /* kernel nodes */                                                                \
    FIELD(5, NUMBER, stack)    /* of the launch that was captured, or of the call that added the node */         \
    FIELD(6, NUMBER, stream)   /* stream the launch was captured on; 0: not captured or not known */             \
    FIELD(7, NUMBER, order)    /* place in the order in which the nodes were made, from 1; 0: not known */       \
    FIELD(8, NUMBERS, shape)   /* kernel: grid x y z, block x y z, shared bytes */                               \
    FIELD(9, NUMBERS, detail)  /* memcpy, memset, conditional: see below; event: its id; host: function, data */ \
    FIELD(10, NUMBER, child)   /* graph id of a child graph; of the first body of a conditional */               \
    FIELD(11, NUMBER, flags)   /* enum gv_node_flag */                                                           \
    FIELD(12, NUMBER, context)

// Edges of a graph snapshot: quadruples (from index, to index, from port, type), port and type as CUgraphEdgeData.
#define GV_EDGES_FIELDS(FIELD) \
    FIELD(1, NUMBER, graph)    \
    FIELD(2, NUMBERS, items)

// An executable graph now runs the snapshot `graph`: written at instantiate and again at every update.
#define GV_EXEC_FIELDS(FIELD)                                                      \
    FIELD(1, NUMBER, id)                                                           \
    FIELD(2, NUMBER, graph)                                                        \
    FIELD(3, NUMBER, operation) /* sequence number of the instantiate or update */ \
    FIELD(4, NUMBER, flags)     /* instantiate flags */

// A launch was armed, or was to be armed and could not be. Written when the armed replay ends; the access records
// of the launch stand before it. status: enum gv_armed_status.
#define GV_ARMED_FIELDS(FIELD)                                                   \
    FIELD(1, NUMBER, launch) /* sequence number of the GRAPH_LAUNCH operation */ \
    FIELD(2, NUMBER, exec)                                                       \
    FIELD(3, NUMBER, graph)                                                      \
    FIELD(4, NUMBER, status)                                                     \
    FIELD(5, TEXT, reason) /* empty when complete */                             \
    FIELD(6, NUMBER, duration_ns)                                                \
    FIELD(7, NUMBER, node) /* index + 1 of the node the status is about; 0: none */

// What one node of an armed launch accessed. Range fields: see gv_ranges_encode in trace/ranges.h. A byte that was
// accessed atomically is in `atomics` and not, for that access, in reads or writes. For a child graph's node, `graph`
// is the child's snapshot. A node in a body has one for each execution of the body. From `wait` on: of a kernel behind
// a programmatic edge, how it stands to its grid-dependency wait. The early ranges, those it accessed before the wait,
// are part of the others.
#define GV_ACCESS_FIELDS(FIELD)                                                   \
    FIELD(1, NUMBER, launch)                                                      \
    FIELD(2, NUMBER, graph)                                                       \
    FIELD(3, NUMBER, node)                                                        \
    FIELD(4, NUMBER, source)    /* enum gv_access_source */                       \
    FIELD(5, NUMBER, precision) /* enum gv_access_precision */                    \
    FIELD(6, BYTES, reads)                                                        \
    FIELD(7, BYTES, writes)                                                       \
    FIELD(8, BYTES, atomics)                                                      \
    FIELD(9, NUMBER, reason) /* string id: why the node is not exact */           \
    FIELD(10, NUMBER, duration_ns)                                                \
    FIELD(11, NUMBER, wait)    /* enum gv_grid_wait */                            \
    FIELD(12, NUMBER, trigger) /* enum gv_grid_trigger */                         \
    FIELD(13, BYTES, early_reads)                                                 \
    FIELD(14, BYTES, early_writes)                                                \
    FIELD(15, BYTES, early_atomics)                                               \
    FIELD(16, NUMBER, wait_reason) /* string id: why its wait was not observed */ \
    FIELD(17, NUMBER, execution)   /* id of the execution of the innermost body the node lies in; 0: in none */

// One execution of a body of a conditional node in an armed launch; written when it begins. Ids count up from 1 within
// the launch.
#define GV_EXECUTION_FIELDS(FIELD)                                                                       \
    FIELD(1, NUMBER, launch)                                                                             \
    FIELD(2, NUMBER, id)                                                                                 \
    FIELD(3, NUMBER, parent) /* id of the execution that the conditional node was part of; 0: of none */ \
    FIELD(4, NUMBER, graph)  /* the body's snapshot */

// A launch that was chosen to be compared with serial replays of its nodes (docs/differential.md). Written when that is
// over; the differences of the launch stand before it. status: enum gv_checked_status.
#define GV_CHECKED_FIELDS(FIELD)                                                                     \
    FIELD(1, NUMBER, launch) /* sequence number of the GRAPH_LAUNCH operation */                     \
    FIELD(2, NUMBER, exec)                                                                           \
    FIELD(3, NUMBER, graph)                                                                          \
    FIELD(4, NUMBER, status)                                                                         \
    FIELD(5, TEXT, reason)             /* why it was not compared; empty when it was */              \
    FIELD(6, NUMBER, duration_ns)      /* of all of it */                                            \
    FIELD(7, NUMBER, graph_ns)         /* of the launch itself, until its work was done */           \
    FIELD(8, NUMBER, serial_ns)        /* of the first serial replay */                              \
    FIELD(9, NUMBER, replays)          /* serial replays that were made */                           \
    FIELD(10, NUMBER, saved_bytes)     /* the memory that it could write, which was copied before */ \
    FIELD(11, NUMBER, different_bytes) /* that the graph left otherwise than the serial replay */    \
    FIELD(12, NUMBER, unstable_bytes)  /* that serial replays left differently among each other */   \
    FIELD(13, NUMBER, ignored_bytes)   /* of padded rows, that were not compared */                  \
    FIELD(14, NUMBER, nodes)           /* how many difference records it has */                      \
    FIELD(15, NUMBER, order)           /* which serial order the differences are with, from 1 */

// The bytes that a checked launch and its serial replay left differently, by the node that wrote them last in the
// serial replay. A node has one such record at most in a launch. Values are those of whole 8-byte words that have a
// differing byte; those of the first ranges stand in the record.
#define GV_DIFFERENCE_FIELDS(FIELD)                                                                            \
    FIELD(1, NUMBER, launch)                                                                                   \
    FIELD(2, NUMBER, graph)         /* snapshot that the node lies in */                                       \
    FIELD(3, NUMBER, node)          /* index + 1; 0: no node of the serial replay wrote them, the graph did */ \
    FIELD(4, NUMBER, position)      /* of the node in the serial replay, from 1 */                             \
    FIELD(5, NUMBER, bytes)         /* that differ between graph and serial replay */                          \
    FIELD(6, NUMBER, unstable)      /* that differ among serial replays */                                     \
    FIELD(7, NUMBER, range_count)   /* of the former */                                                        \
    FIELD(8, BYTES, ranges)         /* of the former, at most the first 4,096 */                               \
    FIELD(9, BYTES, value_ranges)   /* whose values follow */                                                  \
    FIELD(10, BYTES, graph_values)  /* one range behind the other */                                           \
    FIELD(11, BYTES, serial_values) /* the same of the first serial replay */

// How the differences of this recording are to be judged, as the options of `gravel run` said. kind: enum
// gv_setting_kind.
#define GV_SETTING_FIELDS(FIELD)                                                         \
    FIELD(1, NUMBER, kind)                                                               \
    FIELD(2, TEXT, name) /* of a kernel or an allocation, or a part of it; empty: all */ \
    FIELD(3, TEXT, value)

// A region that is hashed between steps: declared by the program, or an allocation that --canary-region names.
#define GV_REGION_FIELDS(FIELD)                            \
    FIELD(1, NUMBER, id)                                   \
    FIELD(2, TEXT, name)                                   \
    FIELD(3, NUMBER, address)                              \
    FIELD(4, NUMBER, size)                                 \
    FIELD(5, NUMBER, page_bytes)                           \
    FIELD(6, NUMBER, group)                                \
    FIELD(7, NUMBER, flags)     /* enum gv_watched_flag */ \
    FIELD(8, NUMBER, stack)     /* of the declaration */   \
    FIELD(9, NUMBER, operation) /* sequence number of the last operation before it */

// What hashing a region between two steps showed: of the steps `first` to `step` of its group, all work of which is
// among the operations (since, operation].
#define GV_REGION_STEP_FIELDS(FIELD)                                                                                  \
    FIELD(1, NUMBER, region)                                                                                          \
    FIELD(2, NUMBER, step)  /* the last one, counted from 1 in its group */                                           \
    FIELD(3, NUMBER, first) /* the first one */                                                                       \
    FIELD(4, NUMBER, operation)                                                                                       \
    FIELD(5, NUMBER, since)                                                                                           \
    FIELD(6, NUMBER, state)    /* enum gv_region_state */                                                             \
    FIELD(7, NUMBER, allowed)  /* how many pages the steps were allowed to change */                                  \
    FIELD(8, NUMBER, exempt)   /* further pages that transfers were declared to write */                              \
    FIELD(9, NUMBER, changed)  /* how many pages changed */                                                           \
    FIELD(10, NUMBER, outside) /* how many of them were neither allowed nor exempt */                                 \
    FIELD(11, NUMBERS, pages)  /* the numbers of those, ascending; the first 4096 */                                  \
    FIELD(12, NUMBER, hash)    /* of the region as it is now */                                                       \
    FIELD(13, NUMBERS, hashed) /* with --checksums: the pages that changed, ascending */                              \
    FIELD(14, BYTES, hashes)   /* and what they hash to now: 8 bytes each, little-endian */                           \
    FIELD(15, NUMBER, reason)  /* string id: why the state is not hashed */                                           \
    FIELD(16, NUMBERS, anew) /* pairs: a page, and the operation behind which it was hashed anew, since a transfer */ \
                             /* had ended: what changed it came later. Only where some page is outside */

// A region is not hashed any more.
#define GV_REGION_END_FIELDS(FIELD)                        \
    FIELD(1, NUMBER, region)                               \
    FIELD(2, NUMBER, operation)                            \
    FIELD(3, NUMBER, why)  /* enum gv_region_end_reason */ \
    FIELD(4, NUMBER, step) /* how many steps of its group had ended */

// What a kernel that was launched outside of graphs accessed. Written for launches that are recorded after a page
// changed against what was declared; the fields are those of an access record.
#define GV_KERNEL_ACCESS_FIELDS(FIELD)                                              \
    FIELD(1, NUMBER, operation) /* sequence number of the launch */                 \
    FIELD(2, NUMBER, function)                                                      \
    FIELD(3, NUMBER, stack)                                                         \
    FIELD(4, NUMBER, source)    /* enum gv_access_source */                         \
    FIELD(5, NUMBER, precision) /* enum gv_access_precision: exact or incomplete */ \
    FIELD(6, BYTES, reads)                                                          \
    FIELD(7, BYTES, writes)                                                         \
    FIELD(8, BYTES, atomics)                                                        \
    FIELD(9, NUMBER, reason) /* string id: why it is not exact */

// A launch that was repeated with other padding or with poisoned memory, or was to be (docs/padding.md). Written when
// that is over; the effects that were seen stand before it. what: enum gv_perturbed_what. status: enum
// gv_perturbed_status.
#define GV_PERTURBED_FIELDS(FIELD)                                                          \
    FIELD(1, NUMBER, launch) /* sequence number of the GRAPH_LAUNCH operation */            \
    FIELD(2, NUMBER, exec)                                                                  \
    FIELD(3, NUMBER, graph)                                                                 \
    FIELD(4, NUMBER, what)                                                                  \
    FIELD(5, NUMBER, status)                                                                \
    FIELD(6, TEXT, reason) /* why it shows nothing; empty when it was checked */            \
    FIELD(7, NUMBER, real_rows)                                                             \
    FIELD(8, TEXT, patterns) /* that were tried, separated by commas */                     \
    FIELD(9, NUMBER, duration_ns)                                                           \
    FIELD(10, NUMBER, replays)                                                              \
    FIELD(11, NUMBER, saved_bytes) /* of memory that was saved before and compared after */ \
    FIELD(12, NUMBER, perturbed_bytes)                                                      \
    FIELD(13, NUMBER, unstable_bytes) /* that equal launches left different */              \
    FIELD(14, NUMBER, left_out_bytes) /* those, and bytes near them, that would have been compared */

// What came of it. kind: enum gv_effect_kind. The bytes are those of the output that changed, that were written, or
// that were read; at most the first 4,096 ranges of them stand in the record.
#define GV_EFFECT_FIELDS(FIELD)                                                        \
    FIELD(1, NUMBER, launch)                                                           \
    FIELD(2, NUMBER, graph) /* snapshot that the node lies in, or that was launched */ \
    FIELD(3, NUMBER, node)  /* index + 1; 0: not known */                              \
    FIELD(4, NUMBER, kind)                                                             \
    FIELD(5, TEXT, name)     /* of the declared rows or memory */                      \
    FIELD(6, TEXT, patterns) /* that showed it, separated by commas */                 \
    FIELD(7, NUMBER, real_rows)                                                        \
    FIELD(8, NUMBER, rows) /* how many real rows of `name` changed */                  \
    FIELD(9, NUMBER, first_row)                                                        \
    FIELD(10, NUMBER, last_row)                                                        \
    FIELD(11, NUMBER, bytes)                                                           \
    FIELD(12, BYTES, ranges)

// A comparison of what a graph left in a clone with what the program computed eagerly (docs/probes.md). Values and
// differences are texts, as printed with enough digits.
#define GV_PROBE_FIELDS(FIELD)                                                                                      \
    FIELD(1, NUMBER, operation) /* sequence number of the last operation before it */                               \
    FIELD(2, TEXT, name)                                                                                            \
    FIELD(3, NUMBER, layer)                                                                                         \
    FIELD(4, NUMBER, bucket)   /* of the clone that was compared */                                                 \
    FIELD(5, NUMBER, fallback) /* 1: it is not the bucket that was asked for, but the last one that was launched */ \
    FIELD(6, TEXT, dtype)                                                                                           \
    FIELD(7, TEXT, tolerance)                                                                                       \
    FIELD(8, NUMBER, real_rows)                                                                                     \
    FIELD(9, NUMBER, elements) /* that were compared */                                                             \
    FIELD(10, NUMBER, differing)                                                                                    \
    FIELD(11, NUMBER, rows) /* that have differing elements */                                                      \
    FIELD(12, NUMBER, first_row)                                                                                    \
    FIELD(13, NUMBER, first_element) /* in its row */                                                               \
    FIELD(14, TEXT, graph_value)     /* of the first one that differs */                                            \
    FIELD(15, TEXT, eager_value)                                                                                    \
    FIELD(16, TEXT, largest) /* difference */                                                                       \
    FIELD(17, TEXT, reason)  /* why nothing was compared; empty when it was */

// Memory that the program declared with gravel_rows or gravel_scratch.
#define GV_DECLARED_FIELDS(FIELD)                           \
    FIELD(1, TEXT, name)                                    \
    FIELD(2, NUMBER, address)                               \
    FIELD(3, NUMBER, row_bytes)                             \
    FIELD(4, NUMBER, rows)                                  \
    FIELD(5, NUMBER, flags)     /* enum gv_declared_flag */ \
    FIELD(6, NUMBER, operation) /* sequence number of the last operation before it */

// An entry of the fix file that the process was run with (`gravel run --fix`). Node numbers are places in the order of
// making (trace/fingerprint.h).
#define GV_FIX_FIELDS(FIELD)                                                                                       \
    FIELD(1, NUMBER, id)                                                                                           \
    FIELD(2, TEXT, name)            /* as messages call it */                                                      \
    FIELD(3, BYTES, exact)          /* fingerprint of the whole graph, 16 bytes */                                 \
    FIELD(4, BYTES, without_shapes) /* and without shapes */                                                       \
    FIELD(5, NUMBER, nodes)         /* of the graph itself */                                                      \
    FIELD(6, NUMBERS, edges) /* each: number in the file from 1, steps, the steps (node number, body), from, to */ \
    FIELD(7, TEXT, kernels)  /* of each edge the kernels it joins, each ended by a newline; empty: not a kernel */

// What the fix file did to the snapshot `graph`, written behind it: one for each entry that fits, else one with the
// nearest entry.
#define GV_FIX_APPLIED_FIELDS(FIELD)                                                                     \
    FIELD(1, NUMBER, graph)                                                                              \
    FIELD(2, NUMBER, fix)                                                                                \
    FIELD(3, NUMBER, status) /* enum gv_fix_status */                                                    \
    FIELD(4, NUMBER, match)  /* enum gv_fix_match */                                                     \
    FIELD(5, NUMBERS, edges) /* that were added: pairs (from index, to index) of the snapshot's edges */ \
    FIELD(6, NUMBERS, there) /* numbers in the fix file of edges that the graph had already */           \
    FIELD(7, TEXT, reason)   /* why nothing was added */

// How long a node runs by itself, without anything that records it.
#define GV_NODE_TIME_FIELDS(FIELD)                                               \
    FIELD(1, NUMBER, launch) /* sequence number of the GRAPH_LAUNCH operation */ \
    FIELD(2, NUMBER, graph)                                                      \
    FIELD(3, NUMBER, node)                                                       \
    FIELD(4, NUMBER, duration_ns) /* sum of its runs */                          \
    FIELD(5, NUMBER, runs)        /* more than one in the body of a loop */

// Something the reader of a report should know: an incompleteness, a switched-off part, a watchdog's word.
#define GV_NOTE_FIELDS(FIELD)                              \
    FIELD(1, NUMBER, severity) /* enum gv_note_severity */ \
    FIELD(2, TEXT, text)                                   \
    FIELD(3, NUMBER, graph)                                \
    FIELD(4, NUMBER, node) /* index + 1; 0: none */        \
    FIELD(5, NUMBER, operation)

// The process ended in a way that let the recorder finish; absent after a kill.
#define GV_END_FIELDS(FIELD)                               \
    FIELD(1, NUMBER, time_ns)                              \
    FIELD(2, NUMBER, operations) /* how many there were */ \
    FIELD(3, NUMBER, reason)     /* 0 exit, 1 exec replaced the program, 2 --canary=abort */

// ---- Values -------------------------------------------------------------------------------------------------

enum gv_stream_kind {
    GV_STREAM_BLOCKING = 0,       // cuStreamCreate(CU_STREAM_DEFAULT)
    GV_STREAM_NON_BLOCKING = 1,   // CU_STREAM_NON_BLOCKING
    GV_STREAM_LEGACY_DEFAULT = 2, // the legacy default stream of a context
    GV_STREAM_THREAD_DEFAULT = 3, // a per-thread default stream
};

enum gv_allocation_kind {
    GV_ALLOCATION_DEVICE = 0,  // cuMemAlloc and pitch
    GV_ALLOCATION_ASYNC = 1,   // stream-ordered, from a pool
    GV_ALLOCATION_MANAGED = 2, // cuMemAllocManaged
    GV_ALLOCATION_PINNED = 3,  // page-locked host memory
    GV_ALLOCATION_MAPPED = 4,  // cuMemMap
    GV_ALLOCATION_NODE = 5,    // a graph's memory allocation node
    GV_ALLOCATION_GLOBAL = 6,  // a module's variable
    GV_ALLOCATION_IMPORTED = 7 // IPC or external memory
};

// Kinds of operations, with the fields each one uses. "host memory" in flags: enum gv_copy_flag.
enum gv_operation_kind {
    GV_OP_NONE = 0,
    GV_OP_KERNEL = 1,          // stream; object: function
    GV_OP_MEMCPY = 2,          // stream; address: destination, value: source, size; flags; detail for 2D and 3D
    GV_OP_MEMSET = 3,          // stream; address, size, value; flags; detail for 2D
    GV_OP_HOST_FUNCTION = 4,   // stream
    GV_OP_EVENT_RECORD = 5,    // stream; object: event
    GV_OP_EVENT_WAIT = 6,      // stream; object: event
    GV_OP_VALUE_WRITE = 7,     // stream; address, value, size (4 or 8)
    GV_OP_VALUE_WAIT = 8,      // stream; address, value, size; flags: CUstreamWaitValue_flags
    GV_OP_ALLOC = 9,           // object: allocation (stream: stream-ordered)
    GV_OP_FREE = 10,           // object: allocation (stream: stream-ordered; 0: ordinary)
    GV_OP_GRAPH_LAUNCH = 11,   // stream; object: exec
    GV_OP_STREAM_SYNC = 12,    // stream; host waits
    GV_OP_EVENT_SYNC = 13,     // object: event; host waits
    GV_OP_CONTEXT_SYNC = 14,   // object: context; host waits
    GV_OP_STREAM_QUERY = 15,   // stream; only queries that answered success are recorded
    GV_OP_EVENT_QUERY = 16,    // object: event; only success
    GV_OP_STREAM_CREATE = 17,  // stream
    GV_OP_STREAM_DESTROY = 18, // stream
    GV_OP_EVENT_DESTROY = 19,  // object: event
    GV_OP_CAPTURE_BEGIN = 20,  // stream; flags: mode
    GV_OP_CAPTURE_END = 21,    // stream; object: graph (0: the capture failed)
    GV_OP_INSTANTIATE = 22,    // object: exec
    GV_OP_EXEC_UPDATE = 23,    // object: exec
    GV_OP_EXEC_SET_NODE = 24,  // object: exec; value: node index + 1
    GV_OP_EXEC_DESTROY = 25,   // object: exec
    GV_OP_HOST_ORDER = 26      // what the program declares through gravel.h: object: token; flags: 0 release, 1 acquire
};

enum gv_copy_flag {
    GV_COPY_FROM_HOST = 1u << 0,   // the source is host memory
    GV_COPY_TO_HOST = 1u << 1,     // the destination is host memory
    GV_COPY_PAGEABLE = 1u << 2,    // that host memory is pageable
    GV_COPY_SYNCHRONOUS = 1u << 3, // the call without Async in its name
    GV_COPY_UNKNOWN = 1u << 4      // arrays or addresses the recorder could not classify
};

enum gv_graph_origin {
    GV_GRAPH_CAPTURED = 1,
    GV_GRAPH_BUILT = 2,
    GV_GRAPH_CHILD = 3,
    GV_GRAPH_UPDATED = 4,
    GV_GRAPH_BODY = 5
};

enum gv_graph_flag {
    GV_GRAPH_UNREADABLE = 1u << 0, // the driver refused to list nodes or edges; a note says what
};

// Node kinds are CUgraphNodeType's values.
enum gv_node_kind {
    GV_NODE_KERNEL = 0,
    GV_NODE_MEMCPY = 1,
    GV_NODE_MEMSET = 2,
    GV_NODE_HOST = 3,
    GV_NODE_CHILD = 4,
    GV_NODE_EMPTY = 5,
    GV_NODE_EVENT_WAIT = 6,
    GV_NODE_EVENT_RECORD = 7,
    GV_NODE_SEMAPHORE_SIGNAL = 8,
    GV_NODE_SEMAPHORE_WAIT = 9,
    GV_NODE_ALLOC = 10,
    GV_NODE_FREE = 11,
    GV_NODE_BATCH_MEMOP = 12,
    GV_NODE_CONDITIONAL = 13
};

enum gv_node_flag {
    GV_NODE_DISABLED = 1u << 0, // cuGraphNodeSetEnabled(..., 0): runs as an empty node
};

// Layout of node.detail for copies and sets (operation.detail has the same layout):
// memcpy: destination, source (0 for an array), width in bytes, height, depth, destination pitch, source pitch,
//         destination slice bytes, source slice bytes
// memset: destination, value, element size, width in elements, height, pitch
// alloc: address, size; free: address
// conditional: type (CUgraphConditionalNodeType), handle, default value, whether the default is assigned at each
//              launch, then the graph id of each body in the order of the driver
enum { GV_CONDITIONAL_BODIES = 4 }; // where the bodies begin

enum gv_armed_status {
    GV_ARMED_COMPLETE = 0, // every node ran under recording (single nodes may still be incomplete)
    GV_ARMED_REFUSED = 1,  // launched as it is; reason says why it could not be run one node at a time
    GV_ARMED_FAILED = 2    // started, and a node failed or made no progress
};

enum gv_checked_status {
    GV_CHECKED_COMPARED = 0,
    GV_CHECKED_NOT_COMPARED = 1 // whatever the difference records say; reason says why
};

enum gv_setting_kind {
    GV_SETTING_DTYPE = 1,     // the elements of what it names: f16, bf16, f32, ...
    GV_SETTING_TOLERANCE = 2, // what counts as a difference: "bitwise", "ulp=N", "relative=X"
    GV_SETTING_DIFF = 3,      // which launches were to be compared: "first", "every=K"; name: of which graphs (--graph)
};

enum gv_access_source {
    GV_SOURCE_NONE = 0,       // nobody looked: empty, event and host nodes
    GV_SOURCE_SANITIZER = 1,  // patches on the GPU
    GV_SOURCE_PARAMETERS = 2, // copy and set parameters
    GV_SOURCE_SOFT = 3,       // the software driver
    // Of kernels whose accesses cannot all be seen (docs/opaque-nodes.md):
    GV_SOURCE_TENSOR_MAP = 4, // one tensor that the kernel has a tensor map of
    GV_SOURCE_COMPARED = 5,   // bytes compared before and after the node
    GV_SOURCE_REACHED = 6,    // allocations and variables that the kernel's parameters lead to
    GV_SOURCE_CHANGED = 7     // bytes compared, and written plainly or by atomic operations: which is not known
};

// A node may have several access records, one for each way in which its accesses became known: it touches nothing
// outside their union, unless one is incomplete.
enum gv_access_precision {
    GV_PRECISION_EXACT = 0,     // these accesses happened
    GV_PRECISION_EXTENT = 1,    // the node may touch any part of these ranges, or none
    GV_PRECISION_INCOMPLETE = 2 // there may be accesses that no record lists
};

// How a kernel behind programmatic edges waits for the kernels in front of them (griddepcontrol.wait).
enum gv_grid_wait {
    GV_GRID_WAIT_UNKNOWN = 0, // not observed
    GV_GRID_WAIT_NONE = 1,    // it does not: everything it does may come before they are complete
    GV_GRID_WAIT_DONE = 2     // it does: what is not in the early ranges came after its wait
};

// When such a kernel lets those behind it begin (griddepcontrol.launch_dependents, or the end of its blocks).
enum gv_grid_trigger {
    GV_GRID_TRIGGER_UNKNOWN = 0,
    GV_GRID_TRIGGER_EARLY = 1, // they can begin before its own wait has returned in any thread
    GV_GRID_TRIGGER_LATE = 2   // they cannot
};

enum gv_function_flag {
    GV_FUNCTION_TENSOR_COPY = 1u << 0,    // its machine code has TMA tensor copies (below: of which kinds)
    GV_FUNCTION_TEXTURE = 1u << 1,        // texture accesses, surface loads
    GV_FUNCTION_MULTIMEM = 1u << 2,       // multimem loads, stores or reductions
    GV_FUNCTION_UNSCANNED = 1u << 3,      // its machine code could not be looked at
    GV_FUNCTION_DEVICE_LAUNCH = 1u << 4,  // it may launch kernels or graphs from the device
    GV_FUNCTION_CONSTANT = 1u << 5,       // its module has __constant__ variables, and reads of them are not reported
    GV_FUNCTION_TENSOR_LOAD = 1u << 6,    // tensor copies that read global memory
    GV_FUNCTION_TENSOR_STORE = 1u << 7,   // tensor copies that write global memory
    GV_FUNCTION_TENSOR_REDUCE = 1u << 8,  // tensor copies that update global memory atomically
    GV_FUNCTION_TENSOR_REPLACE = 1u << 9, // it uses tensor maps that are changed while it runs
    GV_FUNCTION_SURFACE_STORE = 1u << 10, // surface stores and reductions
    GV_FUNCTION_DEVICE_HEAP = 1u << 11,   // its module allocates memory from the device (malloc in a kernel)
    GV_FUNCTION_ATOMIC = 1u << 12,        // atomic operations on global memory (which are reported)
    GV_FUNCTION_UNSEEN = 1u << 13         // none of its accesses is reported
};

enum gv_watched_flag {
    GV_REGION_CANARY = 1u << 0,   // what it changes is compared with what the steps were allowed to
    GV_REGION_CHECKSUM = 1u << 1, // its hashes are in the trace
    GV_REGION_CONSTANT = 1u << 2, // nothing may change it
    GV_REGION_MATCHED = 1u << 3   // an allocation that a pattern named, and not a declaration
};

enum gv_region_state {
    GV_REGION_UNHASHED = 0, // it could not be hashed: what these steps did to it is not known
    GV_REGION_FIRST = 1,    // hashed for the first time: there was nothing to compare with
    GV_REGION_UNKNOWN = 2,  // hashed; what the steps were allowed to change was not declared
    GV_REGION_CHECKED = 3   // hashed and compared with what was allowed
};

enum gv_region_end_reason {
    GV_REGION_ENDED = 0, // the program said so
    GV_REGION_FREED = 1, // its memory was freed
    GV_REGION_BROKEN = 2 // hashing it failed; a note says why
};

enum gv_perturbed_what { GV_PERTURBED_PADDING = 0, GV_PERTURBED_POISON = 1 };

enum gv_perturbed_status {
    GV_PERTURBED_CHECKED = 0,
    GV_PERTURBED_UNSTABLE = 1, // equal replays left bytes different that the verdict is about: silence says nothing
    GV_PERTURBED_REFUSED = 2   // not repeated; reason says why
};

enum gv_effect_kind {
    GV_EFFECT_PAD_READ = 1,  // real rows of an output depend on padded rows of an input
    GV_EFFECT_PAD_WRITE = 2, // something was written for padded rows outside of what may be
    GV_EFFECT_STALE_READ = 3 // the result depends on what poisoned memory held
};

enum gv_declared_flag {
    GV_DECLARED_IN = 1u << 0,
    GV_DECLARED_OUT = 1u << 1,
    GV_DECLARED_INDEX = 1u << 2,
    GV_DECLARED_ZERO_IS_PAD = 1u << 3,
    GV_DECLARED_MINUS_ONE_IS_PAD = 1u << 4,
    GV_DECLARED_SCRATCH = 1u << 5,
    GV_DECLARED_ONE_IS_PAD = 1u << 6
};

// What became of an entry of a fix file at a graph.
enum gv_fix_status {
    GV_FIX_REFUSED = 0,   // the graph runs as it is; reason says why
    GV_FIX_APPLIED = 1,   // its edges are in what runs
    GV_FIX_NOT_NAMED = 2, // no entry fits the graph; reason says what differs from the nearest one
    GV_FIX_FAILED = 3     // the edges were added, and the driver did not take the graph with them
};

enum gv_fix_match {
    GV_FIX_MATCH_NONE = 0,
    GV_FIX_MATCH_EXACT = 1,          // the exact fingerprint
    GV_FIX_MATCH_WITHOUT_SHAPES = 2, // another batch bucket or rank: all but the shapes
    GV_FIX_MATCH_EXEC = 3            // an update of an executable graph that runs with the edges
};

enum gv_note_severity { GV_NOTE_INFO = 0, GV_NOTE_INCOMPLETE = 1, GV_NOTE_FAILURE = 2 };

// ---- Generated structs --------------------------------------------------------------------------------------

#define GV_KIND_NUMBER  uint64_t
#define GV_KIND_TEXT    gv_text
#define GV_KIND_BYTES   gv_bytes
#define GV_KIND_NUMBERS gv_numbers

#define GV_DECLARE_FIELD(key, kind, name) GV_KIND_##kind name;
#define GV_DECLARE_STRUCT(number, name, FIELDS) \
    typedef struct gv_##name##_record {         \
        FIELDS(GV_DECLARE_FIELD)                \
    } gv_##name##_record;
GV_RECORDS(GV_DECLARE_STRUCT)

#define GV_DECLARE_TYPE(number, name, FIELDS) GV_RECORD_##name = number,
enum gv_record_type { GV_RECORDS(GV_DECLARE_TYPE) GV_RECORD_TYPE_COUNT };

// Any record, as the reader hands it out.
#define GV_DECLARE_MEMBER(number, name, FIELDS) gv_##name##_record name;
typedef struct gv_record {
    uint64_t type; // enum gv_record_type, or a number this build does not know
    union {
        GV_RECORDS(GV_DECLARE_MEMBER)
    };
} gv_record;

#endif

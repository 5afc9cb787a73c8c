// Device code inside the recorder.
#ifndef GV_RECORD_EMBED_H
#define GV_RECORD_EMBED_H

// Puts the file `path` into the section and declares `symbol` as its bytes. ".gravel.fatbin" is for what nvcc made:
// `gravel doctor` looks for that section. ".gravel.soft" is for the software driver's kernels.
#define GV_EMBED(symbol, section, path)                                                                            \
    __asm__(".section " section ",\"a\",@progbits\n.balign 64\n.hidden " #symbol "\n.global " #symbol "\n" #symbol \
            ":\n.incbin \"" path "\"\n.balign 64\n.previous\n");                                                   \
    extern const unsigned char symbol[]

#endif

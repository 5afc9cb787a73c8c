// Stands in for libgravel-record.so and libgravel-audit.so in the tests of `gravel run`: loads, and does nothing. Built
// without libc, as the real auditor is. The dynamic linker asks an auditor for la_version.
unsigned la_version(unsigned version);

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    return version;
}

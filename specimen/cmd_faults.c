// gravel-specimen faults: the table of faults.
#include "specimen/commands.h"
#include "specimen/faults.h"

#include <stdio.h>

// Prints text in lines of at most `width` characters, each after the first behind `indent` blanks.
static void print_wrapped(const char *text, int indent, int width)
{
    int column = indent;
    for (const char *word = text; *word;) {
        int length = 0;
        while (word[length] && word[length] != ' ')
            length++;
        if (column > indent && column + 1 + length > width) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, word);
        column += length;
        word += length;
        while (*word == ' ')
            word++;
    }
    putchar('\n');
}

int command_faults(int argc, char **argv)
{
    if (argc > 1) {
        fprintf(stderr, "usage: gravel-specimen faults\n");
        return 2;
    }
    printf("%-19s %s\n", "--fault", "what it does [what gravel reports, and since when]");
    for (int i = 0; i < FAULT_COUNT; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s [%s, %s]", fault_table[i].what, fault_table[i].finding, fault_table[i].since);
        printf("%-19s ", fault_table[i].name);
        print_wrapped(fault_table[i].finding[0] == '-' ? fault_table[i].what : text, 20, 118);
    }
    return 0;
}

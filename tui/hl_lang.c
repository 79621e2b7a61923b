/* The languages: names, key words, and how comments and texts begin and end. A row here is all
 * that another language of the common kind needs. */
#include "config.h"
#include "tui/hl_lang.h"

#include "tui/hl.h"

#define C_WORDS                                                                                    \
    " auto break case char const continue default do double else enum extern float for goto if "   \
    "inline int long register restrict return short signed sizeof static struct switch typedef "   \
    "union unsigned void volatile while bool true false NULL size_t int8_t int16_t int32_t "       \
    "int64_t uint8_t uint16_t uint32_t uint64_t "

#define JS_WORDS                                                                                   \
    " async await break case catch class const continue debugger default delete do else export "   \
    "extends false finally for from function get if import in instanceof let new null of return "  \
    "set static super switch this throw true try typeof undefined var void while with yield "

const struct hl_lang hl_langs[HL_LANGUAGES + 1] = {
    {.names = ""},
    {.names = "c h",
     .words = C_WORDS,
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .begin = '#'},
    {.names = "c++ cpp cxx cc hpp hxx hh cuda cu",
     .words = C_WORDS
     "alignas alignof and catch class co_await co_return co_yield concept const_cast consteval "
     "constexpr decltype delete dynamic_cast explicit export final friend mutable namespace new "
     "noexcept not nullptr operator or override private protected public reinterpret_cast requires "
     "static_assert static_cast template this throw try typeid typename using virtual wchar_t "
     "__global__ __device__ __host__ __shared__ ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .begin = '#'},
    {.names = "rust rs",
     .words = " as async await bool break char const continue crate dyn else enum extern f32 f64 "
              "false fn for i128 i16 i32 i64 i8 if impl in isize let loop match mod move mut pub "
              "ref return self Self static str struct super trait true type u128 u16 u32 u64 u8 "
              "union unsafe use usize where while ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .nests = true,
     .quotes = "\"'",
     .lines = "\"",
     .raw_hash = true,
     .lifetimes = true},
    {.names = "go golang",
     .words = " any bool break byte case chan complex128 complex64 const continue default defer "
              "else error fallthrough false float32 float64 for func go goto if import int int16 "
              "int32 int64 int8 interface iota map nil package range return rune select string "
              "struct switch true type uint uint16 uint32 uint64 uint8 uintptr var ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'`",
     .raw = "`",
     .lines = "`"},
    {.names = "java kotlin kt scala",
     .words = " abstract assert boolean break byte case catch char class companion const continue "
              "data def default do double else enum extends false final finally float for fun goto "
              "if implements import in instanceof int interface internal is lazy long native new "
              "null object open override package private protected public record return sealed "
              "short static super suspend switch synchronized this throw throws trait transient "
              "true try val var void volatile when while yield ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .triple = true,
     .begin = '@'},
    {.names = "javascript js jsx mjs cjs node",
     .words = JS_WORDS,
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'`",
     .lines = "`",
     .begin = '@'},
    {.names = "typescript ts tsx mts cts",
     .words = JS_WORDS "abstract any as asserts bigint boolean declare enum implements infer "
                       "interface is keyof module namespace never number object override private "
                       "protected public readonly satisfies string symbol type unknown ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'`",
     .lines = "`",
     .begin = '@'},
    {.names = "c# csharp cs",
     .words =
         C_WORDS "abstract as async await base byte catch checked class decimal delegate event "
                 "explicit false finally fixed foreach get implicit in interface internal is "
                 "lock namespace new null object operator out override params private "
                 "protected public readonly ref record sbyte sealed set string this throw try "
                 "typeof uint ulong ushort using var virtual where yield ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .triple = true,
     .begin = '#'},
    {.names = "python py python3 py3",
     .words = " False None True and as assert async await break case class continue def del elif "
              "else except finally for from global if import in is lambda match nonlocal not or "
              "pass raise return self try while with yield ",
     .comment = {"#"},
     .quotes = "\"'",
     .triple = true,
     .begin = '@'},
    {.names = "shell sh bash zsh ksh console shell-session",
     .words = " alias break case cd continue declare do done echo elif else esac eval exec exit "
              "export fi for function if in local printf read readonly return set shift source "
              "test then trap unset until while ",
     .comment = {"#"},
     .comment_apart = true,
     .quotes = "\"'`",
     .raw = "'",
     .lines = "\"'"},
    {.names = "json jsonc json5",
     .kind = HL_KEYED,
     .words = " true false null ",
     .comment = {"//"},
     .open = "/*",
     .close = "*/",
     .quotes = "\""},
    {.names = "yaml yml",
     .kind = HL_KEYED,
     .words = " true false null yes no on off ",
     .comment = {"#"},
     .comment_apart = true,
     .quotes = "\"'",
     .raw = "'"},
    {.names = "toml ini conf cfg properties",
     .kind = HL_KEYED,
     .words = " true false ",
     .comment = {"#", ";"},
     .comment_apart = true,
     .quotes = "\"'",
     .raw = "'",
     .triple = true},
    {.names = "sql psql mysql sqlite plsql",
     .words = " add all alter and as asc begin between by case check column commit constraint "
              "create cross default delete desc distinct drop else end except exists false foreign "
              "from full group having if in index inner insert integer intersect into is join key "
              "left like limit not null offset on or order outer over partition primary references "
              "replace returning right rollback select set table text then transaction true union "
              "unique update using values varchar view when where with ",
     .any_case = true,
     .comment = {"--"},
     .open = "/*",
     .close = "*/",
     .quotes = "'\"",
     .raw = "'\"",
     .lines = "'"},
    {.names = "html xhtml svg vue", .kind = HL_MARKUP, .open = "<!--", .close = "-->"},
    {.names = "xml xsl xsd plist", .kind = HL_MARKUP, .open = "<!--", .close = "-->"},
    {.names = "diff patch", .kind = HL_DIFF},
    {.names = "make makefile mk cmake",
     .kind = HL_KEYED,
     .words = " define else endef endif export ifdef ifeq ifndef ifneq include override unexport "
              "vpath ",
     .comment = {"#"},
     .quotes = "\"",
     .begin = 0},
    {.names = "css scss less",
     .kind = HL_KEYED,
     .words = " important inherit none auto ",
     .comment = {"//"},
     .comment_apart = true,
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .begin = '@'},
    {.names = "lua",
     .words = " and break do else elseif end false for function goto if in local nil not or repeat "
              "return then true until while ",
     .comment = {"--"},
     .open = "--[[",
     .close = "]]",
     .quotes = "\"'"},
    {.names = "ruby rb",
     .words =
         " alias and begin break case class def defined? do else elsif end ensure false for if "
         "in module next nil not or redo require rescue retry return self super then true "
         "undef unless until when while yield ",
     .comment = {"#"},
     .quotes = "\"'`",
     .raw = "'"},
    {.names = "perl pl",
     .words = " and cmp do else elsif eq for foreach ge gt if last le lt my ne next no not or our "
              "package print redo require return sub unless until use while ",
     .comment = {"#"},
     .comment_apart = true,
     .quotes = "\"'`",
     .raw = "'"},
};

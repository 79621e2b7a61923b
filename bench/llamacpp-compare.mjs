#!/usr/bin/env node
// Decode and prefill speed beside llama.cpp's, on the same weights: a checkpoint is
// converted to a tier, and that to GGUF; both programs then run by turns, so that
// a busy moment hits both. Prints a Markdown table for LOG.md.
//
//   bench/llamacpp-compare.mjs SCRATCH BUILD_DIR CHECKPOINT_DIR [ROUNDS]
//
// SCRATCH gets node-llama-cpp from npm (llama.cpp's libraries, prebuilt for every
// CPU) and its llama-bench, built from the sources that come with it (git, g++).
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, copyFileSync, symlinkSync, statSync } from "node:fs";
import { join, resolve } from "node:path";

const [scratchArg, buildArg, checkpoint, roundsArg] = process.argv.slice(2);
if (!checkpoint) {
  console.error("usage: bench/llamacpp-compare.mjs SCRATCH BUILD_DIR CHECKPOINT_DIR [ROUNDS]");
  process.exit(2);
}
const scratch = resolve(scratchArg), quasar = join(resolve(buildArg), "quasar");
const rounds = Number(roundsArg ?? 5);
const lib = join(scratch, "lib"), bench = join(lib, "llama-bench");
const run = (cmd, args, opts = {}) =>
  execFileSync(cmd, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 26, ...opts });

function prepare() {
  if (existsSync(bench)) return;
  mkdirSync(lib, { recursive: true });
  const modules = join(scratch, "node_modules");
  run("npm", ["install", "--ignore-scripts", "--prefix", scratch, "node-llama-cpp"]);
  const bins = join(modules, "@node-llama-cpp/linux-x64/bins/linux-x64");
  for (const f of readdirSync(bins).filter((f) => f.includes(".so"))) {
    copyFileSync(join(bins, f), join(lib, f));
    const plain = f.replace(/\.v[\d.]+\.so$/, ".so");
    if (plain !== f && !existsSync(join(lib, plain))) symlinkSync(f, join(lib, plain));
  }
  const src = join(scratch, "src");
  if (!existsSync(src)) run("git", ["clone", "-q", join(modules, "node-llama-cpp/llama/gitRelease.bundle"), src]);
  const versioned = (stem) => "-l:" + readdirSync(lib).find((f) => f.startsWith(stem + ".v") || f === stem + ".so");
  run("g++", ["-O2", "-std=c++17", "-w", ...["include", "ggml/include", "common", "vendor", "."].map((d) => "-I" + join(src, d)),
    join(src, "tools/llama-bench/llama-bench.cpp"), join(src, "tools/llama-bench/main.cpp"), "-o", bench, "-L" + lib,
    versioned("libllama"), versioned("libllama-common"), versioned("libggml"), versioned("libggml-base"), "-Wl,-rpath,$ORIGIN"]);
}

function theirs(gguf, threads) {
  const out = run(bench, ["-m", gguf, "-p", "512", "-n", "64", "-t", String(threads), "-r", "1", "-fa", "on", "-o", "jsonl"]);
  const rows = out.trim().split("\n").map((l) => JSON.parse(l));
  return { prefill: rows.find((r) => r.n_prompt > 0).avg_ts, decode: rows.find((r) => r.n_gen > 0).avg_ts };
}

function ours(file, threads) {
  const r = JSON.parse(run(quasar, ["bench", "-m", file, "--backend", "cpu", "--threads", String(threads), "--reps", "1", "--prompt-tokens", "512", "--json"]));
  return Object.fromEntries(r.results.map((x) => [x.what, x.tok_s]));
}

const median = (v) => {
  const s = [...v].sort((a, b) => a - b), k = s.length >> 1;
  return s.length % 2 ? s[k] : (s[k - 1] + s[k]) / 2;
};
const best = (v) => Math.max(...v);

prepare();
const cases = [];
for (const tier of ["q8", "q4s"]) {
  const file = join(scratch, `demo-${tier}.qsr`), gguf = join(scratch, `demo-${tier}.gguf`);
  run(quasar, ["convert", checkpoint, file, "--tier", tier, "--force"]);
  run(quasar, ["convert", file, gguf, "--to", "gguf", "--force"]);
  for (const threads of [1, 2]) cases.push({ tier, file, gguf, threads, a: [], b: [] });
}
for (let i = 0; i < rounds; i++)
  for (const c of cases) {
    c.a.push(ours(c.file, c.threads));
    c.b.push(theirs(c.gguf, c.threads));
  }
console.log(`Medians of ${rounds} runs by turns (best in brackets), tokens/s; prompt 512, decode 64 from an empty context.`);
console.log("| weights | MB ours / GGUF | threads | what | quasar | llama.cpp | ratio of medians (of bests) |\n|---|---:|---:|---|---:|---:|---:|");
for (const c of cases)
  for (const what of ["decode", "prefill"]) {
    const a = c.a.map((x) => x[what]), b = c.b.map((x) => x[what]);
    const mb = [c.file, c.gguf].map((f) => (statSync(f).size / 1e6).toFixed(1)).join(" / ");
    console.log(`| ${c.tier} | ${mb} | ${c.threads} | ${what} | ${median(a).toFixed(0)} (${best(a).toFixed(0)}) | ` +
      `${median(b).toFixed(0)} (${best(b).toFixed(0)}) | ${(median(a) / median(b)).toFixed(2)} (${(best(a) / best(b)).toFixed(2)}) |`);
  }

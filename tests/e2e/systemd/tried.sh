# What commands of the agent need under the hardened unit. Prints `name: value` lines.
echo "home: $HOME $(touch "$HOME/kept" && echo writable)"
echo "tmp: $(made=$(mktemp) && rm "$made" && echo writable)"
echo "workspace: $(touch here && echo writable)"
echo "system: $(touch /etc/here 2> /dev/null || echo closed)"
# Memory that is written and then executed, as every compiler at run time needs it.
echo "python: $(python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=7); print("runs")' 2>&1)"
command -v npx > /dev/null || exit 0
mkdir -p made
echo '{"name": "made", "version": "1.0.0", "bin": "made.js"}' > made/package.json
echo '#!/usr/bin/env node' > made/made.js
echo 'let n = 0; for (let i = 0; i < 1e7; i++) n += i; require("os").networkInterfaces(); console.log("runs")' >> made/made.js
chmod +x made/made.js
echo "npx: $(npx --yes --offline ./made 2>&1 | grep -x "runs\|.*[Ee]rror.*")"

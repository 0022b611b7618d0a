//! The programs that are measured, and the files that they read.

use clap::ValueEnum;

use crate::harness::contender::{Fit, installed};

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// cat of one small file
    Cat,
    /// 40 small files, each by a cat of its own
    Cats,
    /// Python that imports modules of its library
    PythonImport,
    /// Python that imports numpy and pandas
    PythonPandas,
    /// Python that parses one file of 6 MB
    PythonJson,
    /// git log --stat of five commits
    GitLog,
    /// git status
    GitStatus,
    /// npm --version, which loads modules of JavaScript
    Npm,
    /// gcc -c of a file with system headers
    Gcc,
    /// perl that loads modules
    Perl,
    /// du -s of /usr/include
    Du,
    /// find -ls in /usr/include
    Find,
    /// grep -r in /usr/include
    Grep,
    /// grep -r --include, which opens one file in many
    GrepFew,
    /// tar -c of /usr/include, into a pipe
    Tar,
    /// tar -c of 20,000 files in 400 directories
    TarMany,
    /// the same in a shell, into a pipe
    TarManyShell,
}

/// Copies /usr/include, once.
macro_rules! include {
    ($more:literal) => {
        concat!(
            r#"test -e "$FILES/include" || cp -a /usr/include "$FILES"; "#,
            $more
        )
    };
}

impl Program {
    /// A shell script that makes the program's files below `$FILES`.
    pub fn prepare(self) -> &'static str {
        match self {
            Program::Cat => r#"echo text >"$FILES/file""#,
            Program::Cats => {
                r#"mkdir "$FILES/small"; for n in $(seq 40); do echo text >"$FILES/small/$n"; done"#
            }
            Program::PythonImport => {
                r#"mkdir -p "$FILES/python/lib"; exec cp -a "$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" "$FILES/python/lib""#
            }
            Program::PythonPandas => {
                r#"exec python3 -c 'import importlib.metadata as m, os, shutil, sys
for name in ("numpy", "pandas", "python-dateutil", "six", "pytz", "tzdata"):
    try: files = m.files(name) or []
    except m.PackageNotFoundError: continue
    for file in files:
        to = os.path.join(sys.argv[1], str(file))
        if ".." not in to and os.path.exists(file.locate()) and "/tests/" not in to:
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(file.locate(), to)' "$FILES/pandas""#
            }
            Program::PythonJson => {
                r#"exec /usr/bin/python3 -c 'import json, sys; json.dump([{"n": n, "text": "x" * (n % 50)} for n in range(120000)], open(sys.argv[1], "w"))' "$FILES/list.json""#
            }
            Program::GitLog | Program::GitStatus => {
                r#"test -e "$FILES/repository" && exit
                git() { command git -C "$FILES/repository" -c user.name=bench -c user.email=bench@localhost -c gc.auto=0 "$@"; }
                cp -a /usr/include "$FILES/repository" && git init -q && git add -A && git commit -qm 0
                for n in 1 2 3 4 5; do
                    for file in "$FILES"/repository/linux/*$n*.h; do echo "/* $n */" >>"$file"; done
                    git commit -qam "$n"
                done
                git gc -q"#
            }
            Program::Npm => {
                r#"mkdir "$FILES/node"; for from in /usr/lib/node_modules /usr/share/nodejs; do
                    test ! -e "$from/npm" || exec cp -a "$from/." "$FILES/node"
                done"#
            }
            Program::Gcc => include!(
                r##"cp -a "$(gcc -print-file-name=include)" "$FILES/gcc"
                for name in stdio stdlib string unistd sys/socket netinet/in pthread math; do
                    echo "#include <$name.h>"
                done >"$FILES/program.c""##
            ),
            Program::Perl => {
                r#"exec cp -a "$(perl -MConfig -e 'print $Config{privlibexp}')/." "$FILES/perl""#
            }
            Program::Du | Program::Find | Program::Grep | Program::GrepFew | Program::Tar => {
                include!("")
            }
            Program::TarMany | Program::TarManyShell => {
                r#"test -e "$FILES/many" || for n in $(seq 400); do
                    mkdir -p "$FILES/many/$n" && head -c 204800 /dev/urandom | split -b 4096 - "$FILES/many/$n/"
                done"#
            }
        }
    }

    /// The shell script of a turn. A pipe and a test are there because tar and grep do less if
    /// their output is /dev/null.
    pub fn script(self) -> &'static str {
        match self {
            Program::Cat => r#"exec cat "$FILES/file""#,
            Program::Cats => r#"for file in "$FILES"/small/*; do cat "$file"; done"#,
            Program::PythonImport => {
                r#"PYTHONHOME="$FILES/python" exec /usr/bin/python3 -S -c 'import argparse, asyncio, email.message, http.client, json, unittest'"#
            }
            Program::PythonPandas => {
                r#"PYTHONPATH="$FILES/pandas" exec python3 -c 'import numpy, pandas'"#
            }
            Program::PythonJson => {
                r#"exec /usr/bin/python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$FILES/list.json""#
            }
            Program::GitLog => r#"exec git -C "$FILES/repository" log --stat -5"#,
            Program::GitStatus => r#"exec git -C "$FILES/repository" status"#,
            Program::Npm => r#"exec node "$FILES/node/npm/bin/npm-cli.js" --version"#,
            Program::Gcc => {
                r#"exec gcc -nostdinc -isystem "$FILES/gcc" -isystem "$FILES/include" -isystem "$FILES/include/$(gcc -print-multiarch)" -c -o /dev/null "$FILES/program.c""#
            }
            Program::Perl => {
                r#"PERL5LIB="$FILES/perl" exec perl -e 'use CPAN; use File::Temp; use HTTP::Tiny; use Pod::Usage; use Test::More;'"#
            }
            Program::Du => r#"exec du -s "$FILES/include""#,
            Program::Find => r#"exec find "$FILES/include" -ls"#,
            Program::Grep => r#"grep -r 'no file has this' "$FILES/include"; test $? -eq 1"#,
            Program::GrepFew => {
                r#"grep -r --include '*s.h' 'no file has this' "$FILES/include"; test $? -eq 1"#
            }
            Program::Tar => r#"tar -cf - -C "$FILES" include | cat >/dev/null"#,
            Program::TarMany => r#"exec tar -cf /dev/zero -C "$FILES" many"#,
            Program::TarManyShell => r#"tar -cf - -C "$FILES" many | cat >/dev/null"#,
        }
    }

    /// The title of the table.
    pub fn title(self) -> String {
        let value = self.to_possible_value();
        let help = value.as_ref().and_then(|value| value.get_help());
        help.map(ToString::to_string).unwrap_or_default()
    }

    pub fn fits(self) -> Fit {
        if self == Program::PythonPandas {
            let mut imports = std::process::Command::new("python3");
            let imports = imports.args(["-c", "import numpy, pandas"]).output();
            return match imports.is_ok_and(|said| said.status.success()) {
                true => Fit::Yes,
                false => {
                    Fit::No("python3 does not find numpy and pandas: install them with pip".into())
                }
            };
        }
        let (program, package) = match self {
            Program::PythonImport | Program::PythonPandas | Program::PythonJson => {
                ("/usr/bin/python3", "python3")
            }
            Program::GitLog | Program::GitStatus => ("git", "git"),
            Program::Npm => ("npm", "npm"),
            Program::Gcc => ("gcc", "gcc"),
            Program::Perl => ("perl", "perl"),
            Program::Find => ("find", "findutils"),
            Program::Grep | Program::GrepFew => ("grep", "grep"),
            Program::Tar | Program::TarMany | Program::TarManyShell => ("tar", "tar"),
            Program::Cat | Program::Cats | Program::Du => ("cat", "coreutils"),
        };
        installed(program, package)
    }
}

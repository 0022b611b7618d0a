//! Modules import downwards only: no module depends on another that depends on it.
//!
//! A file depends on the files that define the names it uses. A re-export (`pub use`) and a `mod` line
//! are no dependencies, so a parent may gather what its children define. Unit tests are not looked at.
//! A file of the Python package depends on the files that it imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree, Visibility};

/// A module by the names on its way from the crate's root.
type Module = Vec<String>;

/// The modules that each module depends on.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// The contents of one file, as far as other files matter.
#[derive(Default)]
struct Source {
    /// The names that `use` brings into the file, with their paths from the crate's root.
    names: BTreeMap<String, Vec<String>>,
    /// Paths that the file uses, from the crate's root.
    used: Vec<Vec<String>>,
    /// Names that the file defines.
    defined: BTreeSet<String>,
}

/// One crate: its files by their modules.
struct Crate(BTreeMap<Module, Source>);

impl Crate {
    fn read(root: &Path) -> Crate {
        let texts = texts(root, "rs");
        let modules: BTreeSet<Module> = texts.keys().cloned().collect();
        let sources = texts
            .into_iter()
            .map(|(module, text)| {
                let file = syn::parse_file(&text).unwrap();
                let source = Source::of(&module, &file.items, &modules);
                (module, source)
            })
            .collect();
        Crate(sources)
    }

    /// The file that defines what a path leads to, through any re-exports.
    fn home(&self, path: &[String], depth: usize) -> Option<Module> {
        let known = (0..=path.len()).rev().map(|n| path[..n].to_vec());
        let module = known.clone().find(|module| self.0.contains_key(module))?;
        let (Some(name), true) = (path.get(module.len()), depth < 20) else {
            return Some(module);
        };
        let source = &self.0[&module];
        match source
            .names
            .get(name)
            .filter(|_| !source.defined.contains(name))
        {
            Some(target) => {
                let rest = &path[module.len() + 1..];
                self.home(&[target, rest].concat(), depth + 1)
            }
            None => Some(module),
        }
    }

    fn dependencies(&self) -> Graph {
        let of = |module, source: &Source| {
            let homes = source.used.iter().filter_map(|path| self.home(path, 0));
            homes.filter(|home| home != module).collect()
        };
        let sources = self.0.iter();
        sources
            .map(|(module, source)| (module.clone(), of(module, source)))
            .collect()
    }
}

/// The files below a folder whose names end with this extension: their texts by their modules.
fn texts(root: &Path, extension: &str) -> BTreeMap<Module, String> {
    let mut texts = BTreeMap::new();
    read_dir(root, extension, &mut Vec::new(), &mut texts);
    assert!(!texts.is_empty(), "{} has no .{extension}", root.display());
    texts
}

fn read_dir(
    dir: &Path,
    extension: &str,
    module: &mut Module,
    texts: &mut BTreeMap<Module, String>,
) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            module.push(name);
            read_dir(&path, extension, module, texts);
            module.pop();
        } else if path.extension().is_some_and(|e| e == extension) {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut module = module.clone();
            let is_root = module.is_empty() && ["lib", "main"].contains(&&*name);
            if !(is_root || name == "__init__") {
                module.push(name);
            }
            texts.insert(module, text);
        }
    }
}

impl Source {
    fn of(module: &Module, items: &[Item], modules: &BTreeSet<Module>) -> Source {
        let mut source = Source::default();
        let mut code = TokenStream::new();
        for item in items {
            match item {
                Item::Use(item) => {
                    let mut paths = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut paths);
                    for (name, path) in paths {
                        let Some(path) = from_root(module, &path, modules) else {
                            continue;
                        };
                        if matches!(item.vis, Visibility::Inherited) {
                            source.used.push(path.clone());
                        }
                        source.names.insert(name, path);
                    }
                }
                Item::Mod(item) if item.content.is_none() || is_test(item) => {}
                item => item.to_tokens(&mut code),
            }
        }
        source.scan(module, code, modules);
        source
    }

    /// Notes the paths in some code, and the names that it defines.
    fn scan(&mut self, module: &Module, code: TokenStream, modules: &BTreeSet<Module>) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut before = String::new();
        for token in code {
            match &token {
                TokenTree::Ident(ident) => {
                    let ident = ident.to_string();
                    let defines = ["struct", "enum", "trait", "fn", "type", "const", "static"];
                    if defines.contains(&&*before) {
                        self.defined.insert(ident.clone());
                    }
                    if colons < 2 {
                        self.finish(module, &mut path, modules);
                    }
                    path.push(ident.clone());
                    (colons, before) = (0, ident);
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.scan(module, group.stream(), modules),
                _ => {}
            }
            self.finish(module, &mut path, modules);
            (colons, before) = (0, String::new());
        }
        self.finish(module, &mut path, modules);
    }

    fn finish(&mut self, module: &Module, path: &mut Vec<String>, modules: &BTreeSet<Module>) {
        let path = std::mem::take(path);
        let Some(first) = path.first() else { return };
        match self.names.get(first) {
            Some(target) => self.used.push([target, &path[1..]].concat()),
            None if path.len() > 1 => self.used.extend(from_root(module, &path, modules)),
            None => {}
        }
    }
}

/// Returns true if a module is only for tests: `#[cfg(test)]`, or `#[cfg(all(test, …))]`.
fn is_test(item: &syn::ItemMod) -> bool {
    item.attrs.iter().any(|attr| {
        let text = attr.to_token_stream().to_string().replace(' ', "");
        text.starts_with("#[cfg(test)") || text.starts_with("#[cfg(all(test")
    })
}

/// The names that a `use` brings, each with its path.
fn flatten(tree: &UseTree, prefix: &mut Vec<String>, out: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, out);
            prefix.pop();
        }
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| flatten(tree, prefix, out)),
        UseTree::Name(name) if name.ident == "self" => {
            out.push((prefix.last().cloned().unwrap_or_default(), prefix.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            out.push((name.clone(), [prefix.as_slice(), &[name]].concat()));
        }
        UseTree::Rename(rename) => {
            let path = [prefix.as_slice(), &[rename.ident.to_string()]].concat();
            out.push((rename.rename.to_string(), path));
        }
        UseTree::Glob(_) => out.push(("*".into(), prefix.clone())),
    }
}

/// A path from the crate's root, if it leads into the crate.
fn from_root(module: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match &*path[0] {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len() - supers], &path[supers..]].concat()),
        first => {
            let child = [module.as_slice(), &[first.to_owned()]].concat();
            modules.contains(&child).then(|| [module, path].concat())
        }
    }
}

/// The modules that each module of a Python package imports, by relative imports.
fn python_imports(texts: &BTreeMap<Module, String>) -> Graph {
    let imports = |module: &Module, text: &str| {
        // The module of a folder is its `__init__.py`.
        let is_folder = texts
            .keys()
            .any(|m| m.len() > module.len() && m.starts_with(module));
        let package = &module[..module.len() - usize::from(!is_folder)];
        let mut imported = BTreeSet::new();
        for (at, _) in text.match_indices("from .") {
            let Some((from, names)) = text[at + "from ".len()..].split_once(" import ") else {
                continue;
            };
            // Not in a sentence of a comment.
            if from.contains(char::is_whitespace) {
                continue;
            }
            let path = from.trim_start_matches('.');
            let above = package.len() + 1 - (from.len() - path.len());
            let path = path.split('.').filter(|name| !name.is_empty());
            let base: Module = package[..above]
                .iter()
                .cloned()
                .chain(path.map(str::to_owned))
                .collect();
            let end = if names.starts_with('(') { ')' } else { '\n' };
            let names = names.split(end).next().unwrap_or_default();
            for name in names.split([',', '(', '\n']) {
                // A name is a submodule, or the module defines it.
                let submodule = [&*base, &[name.trim().to_owned()]].concat();
                let is_module = texts.contains_key(&submodule);
                imported.insert(if is_module { submodule } else { base.clone() });
            }
        }
        imported.retain(|used| used != module && texts.contains_key(used));
        imported
    };
    texts
        .iter()
        .map(|(module, text)| (module.clone(), imports(module, text)))
        .collect()
}

/// The modules that depend on each other, of those that `of` groups a module by.
fn cycles(dependencies: &Graph, of: impl Fn(&Module) -> Module) -> Vec<String> {
    let mut graph = Graph::new();
    for (module, uses) in dependencies {
        let edges = graph.entry(of(module)).or_default();
        edges.extend(uses.iter().map(&of).filter(|used| *used != of(module)));
    }
    // Modules whose dependencies are all removed are removed, and modules that none uses. The rest is
    // cycles, and modules between two cycles.
    loop {
        let used: BTreeSet<&Module> = graph.values().flatten().collect();
        let is_free = |module: &Module, uses: &BTreeSet<Module>| {
            !used.contains(module) || uses.iter().all(|used| !graph.contains_key(used))
        };
        let done: Vec<Module> = graph
            .iter()
            .filter(|(module, uses)| is_free(module, uses))
            .map(|(module, _)| module.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        done.iter().for_each(|module| drop(graph.remove(module)));
    }
    let left: BTreeSet<Module> = graph.keys().cloned().collect();
    let name = |module: &Module| format!("crate::{}", module.join("::"));
    let lines = graph.iter().map(|(module, uses)| {
        let uses: Vec<_> = uses.intersection(&left).map(name).collect();
        format!("{} uses {}", name(module), uses.join(", "))
    });
    lines.collect()
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn files_import_downwards_only() {
    for sources in [
        "bench/benches/parts",
        "bench/datafusion/src",
        "bench/instructions/src",
        "bench/src",
        "crates/nowait-ahead-channel/src",
        "crates/nowait-ahead-policy/src",
        "crates/nowait-ahead/src",
        "crates/nowait-aio/src",
        "crates/nowait-capi/src",
        "crates/nowait-cli/src",
        "crates/nowait-object-store/src",
        "crates/nowait-page-cache/src",
        "crates/nowait-residency/src",
        "crates/nowait-serve-dir/src",
        "crates/nowait/src",
        "crates/powercut/src",
        "crates/slowdisk/src",
        "crates/test-support/src",
        "python/src",
    ] {
        let parsed = Crate::read(&checkout().join(sources));
        let cycles = cycles(&parsed.dependencies(), Module::clone);
        assert!(cycles.is_empty(), "{sources}:\n{}", cycles.join("\n"));
    }
}

#[test]
fn files_of_the_python_package_import_downwards_only() {
    let texts = texts(&checkout().join("python/package/nowait"), "py");
    let cycles = cycles(&python_imports(&texts), Module::clone);
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

fn library() -> Crate {
    Crate::read(&checkout().join("crates/nowait/src"))
}

#[test]
fn folders_import_downwards_only() {
    let top = |module: &Module| module[..module.len().min(1)].to_vec();
    let cycles = cycles(&library().dependencies(), top);
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn the_layers_are_those_of_the_architecture() {
    let text = std::fs::read_to_string(checkout().join("ARCHITECTURE.md")).unwrap();
    let list = text
        .split("```layers")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let layers: Vec<&str> = list.unwrap().split_whitespace().collect();
    let place = |module: &Module| {
        let name = module.first()?;
        let place = layers.iter().position(|layer| layer == name);
        Some(place.unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md's list")))
    };
    // The root gathers what the others define; `internals` is there for fuzz targets and benchmarks.
    let is_layer = |module: &Module| !module.is_empty() && module != &["internals"];
    for (module, uses) in library().dependencies() {
        let Some(above) = Some(&module)
            .filter(|module| is_layer(module))
            .and_then(place)
        else {
            continue;
        };
        for used in uses {
            let below = place(&used).filter(|below| *below != above);
            let downwards = below.is_none_or(|below| below > above);
            assert!(downwards, "{module:?} uses {used:?}, which stands above it");
        }
    }
}

#[test]
fn a_cycle_is_found() {
    let modules: BTreeSet<Module> = ["a", "b"].map(|name| vec![name.to_owned()]).into();
    let parse = |name: &str, text: &str| {
        let module = vec![name.to_owned()];
        let source = Source::of(&module, &syn::parse_file(text).unwrap().items, &modules);
        (module, source)
    };
    let with = |b: &str| {
        let a = parse("a", "use crate::b::B; struct A(B);");
        Crate([a, parse("b", b)].into())
    };
    let none = with("struct B; #[cfg(test)] mod tests { use crate::a::A; }");
    assert!(cycles(&none.dependencies(), Module::clone).is_empty());
    for b in [
        "struct B(Vec<super::a::A>);",
        "use crate::a; struct B; fn f() -> a::A {}",
        "struct B; macro_rules! m { () => { crate::a::A } }",
    ] {
        let found = cycles(&with(b).dependencies(), Module::clone);
        assert_eq!(found.len(), 2, "{b}");
    }
}

#[test]
fn a_cycle_of_python_is_found() {
    let with = |b: &str| {
        let init = "from .folder import b\n";
        let a =
            "import os\n\nfrom ..c import (\n    C,\n    D,\n)\n\ndef f():\n    from .b import B\n";
        let files = [
            ("", init),
            ("folder", ""),
            ("folder/a", a),
            ("folder/b", b),
            ("c", ""),
        ];
        let files = files.map(|(path, text)| {
            let names = path.split('/').filter(|name| !name.is_empty());
            (names.map(str::to_owned).collect(), text.to_owned())
        });
        cycles(&python_imports(&files.into()), Module::clone)
    };
    assert_eq!(with("from ..c import C\n"), [""; 0]);
    for b in [
        "from .a import f",
        "from . import a",
        "from . import (\n    a,\n)",
        "from ..folder.a import f\n",
    ] {
        assert_eq!(
            with(b)
                .iter()
                .filter(|line| line.contains("::b uses"))
                .count(),
            1,
            "{b}"
        );
    }
}

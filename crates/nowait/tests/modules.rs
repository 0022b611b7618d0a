//! Modules import downwards only: no module depends on another that depends on it.
//!
//! A file depends on the files that define the names it uses. A re-export (`pub use`) and a `mod` line
//! are no dependencies, so a parent may gather what its children define. Unit tests are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree, Visibility};

/// A module by the names on its way from the crate's root.
type Module = Vec<String>;

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
        let mut texts = BTreeMap::new();
        read_dir(root, &mut Vec::new(), &mut texts);
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

    /// The modules that each module depends on.
    fn dependencies(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |module, source: &Source| {
            let homes = source.used.iter().filter_map(|path| self.home(path, 0));
            homes.filter(|home| home != module).collect()
        };
        let sources = self.0.iter();
        sources
            .map(|(module, source)| (module, of(module, source)))
            .collect()
    }
}

fn read_dir(dir: &Path, module: &mut Module, texts: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            module.push(name);
            read_dir(&path, module, texts);
            module.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut module = module.clone();
            if !(module.is_empty() && ["lib", "main"].contains(&&*name)) {
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

/// The modules that depend on each other, of those that `of` groups a module by.
fn cycles(parsed: &Crate, of: impl Fn(&Module) -> Module) -> Vec<String> {
    let mut graph: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, uses) in parsed.dependencies() {
        let edges = graph.entry(of(module)).or_default();
        edges.extend(uses.iter().map(&of).filter(|used| *used != of(module)));
    }
    // Modules whose dependencies are all removed are removed, too. The rest is cycles.
    loop {
        let free = |uses: &BTreeSet<Module>| uses.iter().all(|used| !graph.contains_key(used));
        let done: Vec<Module> = graph
            .iter()
            .filter(|(_, uses)| free(uses))
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

fn sources(name: &str) -> Crate {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    Crate::read(&crates.join(name).join("src"))
}

#[test]
fn files_import_downwards_only() {
    for name in [
        "nowait",
        "nowait-ahead",
        "nowait-ahead-channel",
        "nowait-ahead-policy",
        "nowait-aio",
        "nowait-capi",
        "nowait-cli",
        "nowait-object-store",
        "nowait-page-cache",
        "nowait-residency",
        "nowait-serve-dir",
        "slowdisk",
    ] {
        let cycles = cycles(&sources(name), Module::clone);
        assert!(cycles.is_empty(), "{name}:\n{}", cycles.join("\n"));
    }
}

#[test]
fn folders_import_downwards_only() {
    let top = |module: &Module| module[..module.len().min(1)].to_vec();
    let cycles = cycles(&sources("nowait"), top);
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn the_layers_are_those_of_the_architecture() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
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
    let parsed = sources("nowait");
    // The root gathers what the others define; `internals` is there for fuzz targets and benchmarks.
    let is_layer = |module: &Module| !module.is_empty() && module != &["internals"];
    for (module, uses) in parsed.dependencies() {
        let Some(above) = Some(module)
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
    assert!(cycles(&none, Module::clone).is_empty());
    for b in [
        "struct B(Vec<super::a::A>);",
        "use crate::a; struct B; fn f() -> a::A {}",
        "struct B; macro_rules! m { () => { crate::a::A } }",
    ] {
        assert_eq!(cycles(&with(b), Module::clone).len(), 2, "{b}");
    }
}

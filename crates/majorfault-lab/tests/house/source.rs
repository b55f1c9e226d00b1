//! Source files, parsed; and which of them are tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// The files of one crate.
pub struct Tree {
    pub files: Vec<Source>,
}

/// One file below `src`.
pub struct Source {
    /// Its path below `src`.
    pub path: PathBuf,
    /// Its module's path from the crate's root.
    pub module: Vec<String>,
    pub syntax: syn::File,
    /// Compiled for tests only.
    pub is_test: bool,
}

impl Tree {
    /// The files below `src`.
    pub fn read(src: &Path) -> Tree {
        let texts = paths(src).into_iter().map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path.strip_prefix(src).unwrap().to_owned(), text)
        });
        Tree::of(texts)
    }

    /// Files that are made up: paths below `src` and their texts.
    pub fn made_up(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())))
    }

    fn of(texts: impl Iterator<Item = (PathBuf, String)>) -> Tree {
        let parsed = |(path, text): (PathBuf, String)| {
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Source { module: module(&path), path, syntax, is_test: false }
        };
        let mut files: Vec<Source> = texts.map(parsed).collect();
        let tests: BTreeSet<Vec<String>> = files.iter().flat_map(Source::test_modules).collect();
        for file in &mut files {
            file.is_test = (1..=file.module.len()).any(|length| tests.contains(&file.module[..length]));
        }
        Tree { files }
    }

    /// The files that are compiled into the program.
    pub fn code(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| !file.is_test)
    }
}

impl Source {
    /// The first folder or file name below `src`; that of the root is `lib` or `main`.
    pub fn room(&self) -> &str {
        self.module.first().map_or_else(|| self.path.file_stem().unwrap().to_str().unwrap(), String::as_str)
    }

    /// The folder that it lies in, or that it opens.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap()
    }

    /// Modules in files of their own that are declared for tests, and all that is called a spec: it is tests from end to
    /// end, and may open what it specifies as users do, from above.
    fn test_modules(&self) -> Vec<Vec<String>> {
        let inside = |name: String| self.module.iter().cloned().chain([name]).collect();
        let declared = self.syntax.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => {
                Some(inside(module.ident.to_string()))
            }
            _ => None,
        });
        let spec = self.module.last().is_some_and(|name| name == "spec").then(|| self.module.clone());
        declared.chain(spec).collect()
    }
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(paths(&entry)),
            false if entry.extension().is_some_and(|end| end == "rs") => found.push(entry),
            false => {}
        }
    }
    found.sort();
    found
}

/// `access/mmap.rs` is `access::mmap`, `access/mod.rs` is `access`, `lib.rs` is the root.
fn module(path: &Path) -> Vec<String> {
    let names = path.with_extension("");
    let mut names: Vec<String> = names.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|name| matches!(name.as_str(), "mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// Whether these attributes leave an item out of the program.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = || attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition));
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && condition())
    })
}

/// Whether a condition can hold in tests only.
fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
    match () {
        () if list.path.is_ident("all") => parts.iter().any(needs_test),
        () if list.path.is_ident("any") => parts.iter().all(needs_test),
        () => false,
    }
}

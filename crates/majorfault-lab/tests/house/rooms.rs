//! Rooms and floors: which rooms a file uses, and which of these it may not.

use super::source::{Source, Tree};
use super::uses;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree};

/// The order of a crate's rooms.
pub struct Plan {
    /// Rooms by floor, lowest first. A file may use its own floor's and lower ones.
    pub floors: &'static [&'static [&'static str]],
    /// Within a floor, who may not know whom.
    pub strangers: &'static [(&'static str, &'static str)],
}

impl Plan {
    fn floor(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|rooms| rooms.contains(&room))
    }

    /// What stands against the plan, a sentence each.
    pub fn violations(&self, tree: &Tree) -> Vec<String> {
        let at_root = reexported(tree);
        let houses = tree.code().filter(|file| !file.module.is_empty());
        houses.flat_map(|file| self.violations_of(file, &at_root)).collect()
    }

    fn violations_of(&self, file: &Source, at_root: &BTreeMap<String, String>) -> Vec<String> {
        let Some(own) = self.floor(file.room()) else {
            return vec![format!("{} is on no floor", file.path.display())];
        };
        let wrong = |room: &String| match self.floor(room) {
            None => Some(format!("{} uses {room}, which is on no floor", file.path.display())),
            Some(floor) => {
                let is_wrong = floor > own || self.strangers.contains(&(file.room(), room));
                is_wrong.then(|| format!("{} uses {room}", file.path.display()))
            }
        };
        rooms_of(file, at_root).iter().filter_map(wrong).collect()
    }
}

/// Rooms that each file of the program uses beside its own.
pub fn used(tree: &Tree) -> Vec<(&Source, BTreeSet<String>)> {
    let at_root = reexported(tree);
    tree.code().map(|file| (file, rooms_of(file, &at_root))).collect()
}

fn rooms_of(file: &Source, at_root: &BTreeMap<String, String>) -> BTreeSet<String> {
    let first = uses::of(file).into_iter().filter_map(|path| path.into_iter().next());
    let rooms = first.map(|name| at_root.get(&name).cloned().unwrap_or(name));
    rooms.filter(|room| room != file.room()).collect()
}

/// What the crate's root shows under its own name, with the room that it comes from.
fn reexported(tree: &Tree) -> BTreeMap<String, String> {
    let roots = tree.code().filter(|file| file.module.is_empty());
    let mut found = BTreeMap::new();
    for item in roots.flat_map(|file| &file.syntax.items) {
        if let Item::Use(item) = item {
            names(&item.tree, None, &mut found);
        }
    }
    let macros = tree.code().flat_map(|file| file.syntax.items.iter().map(move |item| (file, item)));
    found.extend(macros.filter_map(|(file, item)| Some((exported(item)?, file.room().to_owned()))));
    found
}

fn names(tree: &UseTree, room: Option<&str>, found: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) if room.is_none() && (path.ident == "crate" || path.ident == "self") => {
            names(&path.tree, None, found);
        }
        UseTree::Path(path) => names(&path.tree, Some(room.unwrap_or(&path.ident.to_string())), found),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, room, found)),
        UseTree::Name(name) => keep(&name.ident, room, found),
        UseTree::Rename(name) => keep(&name.rename, room, found),
        UseTree::Glob(_) => {}
    }
}

fn keep(name: &syn::Ident, room: Option<&str>, found: &mut BTreeMap<String, String>) {
    found.extend(room.map(|room| (name.to_string(), room.to_owned())));
}

/// The name of a macro that the root shows.
fn exported(item: &Item) -> Option<String> {
    let Item::Macro(item) = item else { return None };
    let is_exported = item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
    item.ident.as_ref().filter(|_| is_exported).map(ToString::to_string)
}

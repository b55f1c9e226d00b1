//! One word, one thing: no two public types of the workspace have one name.

use super::source::{Tree, is_test};
use std::collections::BTreeMap;
use std::path::PathBuf;
use syn::{Attribute, Ident, Item, Visibility};

/// Names of public types that are defined more than once, with the files that define them.
pub fn twice(trees: &[&Tree]) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in trees.iter().flat_map(|tree| tree.code()) {
        for name in types(&file.syntax.items) {
            found.entry(name).or_default().push(file.path.clone());
        }
    }
    found.retain(|_, files| files.len() > 1);
    found
}

/// Public types of these items and of the modules among them, but for tests.
fn types(items: &[Item]) -> Vec<String> {
    items.iter().flat_map(named).collect()
}

fn named(item: &Item) -> Vec<String> {
    let (ident, visibility, attributes): (&Ident, &Visibility, &[Attribute]) = match item {
        Item::Struct(it) => (&it.ident, &it.vis, &it.attrs),
        Item::Enum(it) => (&it.ident, &it.vis, &it.attrs),
        Item::Trait(it) => (&it.ident, &it.vis, &it.attrs),
        Item::Mod(it) => {
            let inside = it.content.iter().filter(|_| !is_test(&it.attrs));
            return inside.flat_map(|(_, items)| types(items)).collect();
        }
        _ => return Vec::new(),
    };
    let is_private = matches!(visibility, Visibility::Inherited);
    if is_private || is_test(attributes) { Vec::new() } else { vec![ident.to_string()] }
}

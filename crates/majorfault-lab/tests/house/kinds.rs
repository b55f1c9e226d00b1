//! Kinds: a constant declares one, and a registry lists it.

use super::source::{Source, Tree, is_test};
use syn::visit::{self, Visit};
use syn::{Expr, Item, ItemConst, Lit, Type, UseTree};

/// A kind's type, and the files that list its members.
pub struct Registry {
    pub kind: &'static str,
    pub files: &'static [&'static str],
}

/// One member of a kind.
pub struct Member<'a> {
    pub file: &'a Source,
    /// The constant.
    pub constant: String,
    /// What its field `name` says.
    pub name: Option<String>,
}

/// Every constant of this type.
pub fn members<'a>(tree: &'a Tree, kind: &str) -> Vec<Member<'a>> {
    let constants = tree.code().flat_map(|file| {
        let items = file.syntax.items.iter();
        items.filter_map(move |item| match item {
            Item::Const(item) if !is_test(&item.attrs) => Some((file, item)),
            _ => None,
        })
    });
    let of_kind = constants.filter(|(_, item)| is_type(&item.ty, kind));
    of_kind.map(|(file, item)| Member { file, constant: item.ident.to_string(), name: name(item) }).collect()
}

fn is_type(declared: &Type, kind: &str) -> bool {
    matches!(declared, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == kind))
}

fn name(item: &ItemConst) -> Option<String> {
    let Expr::Struct(value) = &*item.expr else { return None };
    let field =
        value.fields.iter().find(|field| matches!(&field.member, syn::Member::Named(name) if name == "name"))?;
    match &field.expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Members that no registry lists, a sentence each.
pub fn unregistered(tree: &Tree, registry: &Registry) -> Vec<String> {
    let is_registry = |file: &&Source| registry.files.iter().any(|path| file.path.ends_with(path));
    let listed: Vec<Vec<String>> = tree.code().filter(is_registry).flat_map(named).collect();
    let is_listed = |member: &Member| {
        let ways = ways(tree, member);
        listed.iter().any(|path| ways.iter().any(|way| path.ends_with(way)))
    };
    let forgotten = members(tree, registry.kind).into_iter().filter(|member| !is_listed(member));
    let told = |member: Member| {
        let path = member.file.path.display();
        format!("{path} declares {}, a {} that is not listed", member.constant, registry.kind)
    };
    forgotten.map(told).collect()
}

/// The paths by which a registry may name it: by its file, or as its folder shows it.
fn ways(tree: &Tree, member: &Member) -> Vec<Vec<String>> {
    let Some((stem, folder)) = member.file.module.split_last() else { return Vec::new() };
    let own = vec![stem.clone(), member.constant.clone()];
    let parent = tree.code().find(|file| file.module == folder);
    let items = parent.into_iter().flat_map(|file| &file.syntax.items);
    let shown = items.filter_map(|item| match item {
        Item::Use(item) => shown(&item.tree, &own),
        _ => None,
    });
    let above = |name| folder.last().cloned().into_iter().chain([name]).collect();
    [own.clone()].into_iter().chain(shown.map(above)).collect()
}

/// Under which name a `use` shows the rest of this path.
fn shown(tree: &UseTree, rest: &[String]) -> Option<String> {
    match (tree, rest) {
        (UseTree::Path(path), [first, rest @ ..]) if path.ident == first => shown(&path.tree, rest),
        (UseTree::Path(path), _) if path.ident == "self" => shown(&path.tree, rest),
        (UseTree::Name(name), [only]) if name.ident == only => Some(only.clone()),
        (UseTree::Rename(name), [only]) if name.ident == only => Some(name.rename.to_string()),
        (UseTree::Group(group), _) => group.items.iter().find_map(|tree| shown(tree, rest)),
        _ => None,
    }
}

/// Paths in the values of constants.
fn named(file: &Source) -> Vec<Vec<String>> {
    struct Named(Vec<Vec<String>>);
    impl<'a> Visit<'a> for Named {
        fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
            self.0.push(path.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
            visit::visit_expr_path(self, path);
        }
    }
    let mut named = Named(Vec::new());
    for item in &file.syntax.items {
        match item {
            Item::Const(item) if !is_test(&item.attrs) => named.visit_item_const(item),
            Item::Static(item) if !is_test(&item.attrs) => named.visit_item_static(item),
            _ => {}
        }
    }
    named.0
}

//! Every path of the own crate that a file's code names: in `use`, in types and expressions, in patterns, in macros.

use super::source::{Source, is_test};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, Macro, Meta, UseTree, Visibility};

/// Paths from the crate's root; a star ends one that names all there is.
pub fn of(source: &Source) -> Vec<Vec<String>> {
    let mut uses = Uses { module: source.module.clone(), found: Vec::new() };
    uses.visit_file(&source.syntax);
    uses.found
}

struct Uses {
    /// Where we are.
    module: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Uses {
    /// Keeps a path that begins with `crate`, `self` or `super`; others are of other crates, or within their module.
    fn keep(&mut self, path: &[String]) {
        let mut from = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        let is_head = |name: &&String| matches!(name.as_str(), "crate" | "self" | "super");
        let heads: Vec<&String> = path.iter().take_while(is_head).collect();
        for _ in heads.iter().filter(|name| **name == "super") {
            from.pop();
        }
        from.extend_from_slice(&path[heads.len()..]);
        self.found.push(from);
    }

    fn keep_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.keep_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.keep(&with(&name.ident)),
            UseTree::Rename(name) => self.keep(&with(&name.ident)),
            UseTree::Glob(_) => self.keep(&with(&"*")),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.keep_tree(tree, before)),
        }
    }

    /// Looks for paths among tokens, whatever the macro makes of them.
    fn keep_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(name) if name == "crate" || name == "super" || name == "self" => {
                    let before = name.to_string();
                    self.keep_after(&tokens[index + 1..], vec![before]);
                }
                TokenTree::Group(group) => self.keep_tokens(group.stream()),
                _ => {}
            }
        }
    }

    /// Goes on with a path that has begun: `::name`, `::{a, b::c}`, `::*`.
    fn keep_after(&mut self, rest: &[TokenTree], mut path: Vec<String>) {
        let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':');
        match rest {
            [one, two, TokenTree::Ident(name), after @ ..] if is_colon(one) && is_colon(two) => {
                path.push(name.to_string());
                self.keep_after(after, path);
            }
            [one, two, TokenTree::Group(group), ..]
                if is_colon(one) && is_colon(two) && group.delimiter() == Delimiter::Brace =>
            {
                let members: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                members.split(is_comma).for_each(|member| self.keep_member(member, &path));
            }
            [one, two, TokenTree::Punct(mark), ..] if is_colon(one) && is_colon(two) && mark.as_char() == '*' => {
                path.push("*".to_owned());
                self.keep(&path);
            }
            _ if path.len() > 1 => self.keep(&path),
            _ => {}
        }
    }

    fn keep_member(&mut self, member: &[TokenTree], before: &[String]) {
        if let [TokenTree::Ident(name), after @ ..] = member {
            self.keep_after(after, [before, &[name.to_string()]].concat());
        }
    }
}

impl<'a> Visit<'a> for Uses {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Const(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.keep_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.keep(&names);
        }
        visit::visit_path(self, path);
    }

    /// Who may see an item is no use of theirs.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_macro(&mut self, call: &'a Macro) {
        self.visit_path(&call.path);
        self.keep_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.keep_tokens(list.tokens.clone());
        }
    }
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item::*;
    match item {
        Const(item) => &item.attrs,
        Enum(item) => &item.attrs,
        Fn(item) => &item.attrs,
        Impl(item) => &item.attrs,
        Macro(item) => &item.attrs,
        Mod(item) => &item.attrs,
        Static(item) => &item.attrs,
        Struct(item) => &item.attrs,
        Trait(item) => &item.attrs,
        Type(item) => &item.attrs,
        Union(item) => &item.attrs,
        Use(item) => &item.attrs,
        _ => &[],
    }
}

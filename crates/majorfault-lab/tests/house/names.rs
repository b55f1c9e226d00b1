//! A kind's name belongs to the kind: others may choose by it, but not ask for it.

use super::kinds::members;
use super::source::{Source, Tree, is_test};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, Pat, Token};

/// Names of members, with the folders that declare them.
pub type Names = BTreeMap<String, BTreeSet<PathBuf>>;

/// Methods that ask whether a text is another, or contains it.
const ASKING: &[&str] = &["contains", "starts_with", "ends_with", "eq", "ne", "strip_prefix", "eq_ignore_ascii_case"];

/// The names of all members of these kinds.
pub fn declared(trees: &[&Tree], kinds: &[&str]) -> Names {
    let mut names = Names::new();
    let all = kinds.iter().flat_map(|kind| trees.iter().flat_map(|tree| members(tree, kind)));
    for member in all {
        let name = member.name.unwrap_or_else(|| panic!("{} has no name", member.file.path.display()));
        names.entry(name).or_default().insert(member.file.folder().to_owned());
    }
    names
}

/// Where a name is asked for outside of the folders that declare it: file, line, name.
pub fn asked<'a>(tree: &'a Tree, names: &Names) -> Vec<(&'a Path, usize, String)> {
    tree.code()
        .flat_map(|file| asked_in(file, names).into_iter().map(|(line, name)| (&*file.path, line, name)))
        .collect()
}

fn asked_in(file: &Source, names: &Names) -> Vec<(usize, String)> {
    let is_own = |name: &String| names[name].iter().any(|folder| file.folder().starts_with(folder));
    let mut asks = Asks { names, found: Vec::new() };
    asks.visit_file(&file.syntax);
    asks.found.retain(|(_, name)| !is_own(name));
    asks.found
}

struct Asks<'n> {
    names: &'n Names,
    found: Vec<(usize, String)>,
}

impl Asks<'_> {
    fn keep(&mut self, literal: &Lit) {
        if let Lit::Str(text) = literal
            && self.names.contains_key(&text.value())
        {
            self.found.push((text.span().start().line, text.value()));
        }
    }

    /// The literals that a value consists of: `"x"`, `&"x"`, `Some("x")`, `["x", "y"]`, `"x".to_owned()`.
    fn keep_value(&mut self, value: &Expr) {
        match value {
            Expr::Lit(literal) => self.keep(&literal.lit),
            Expr::Reference(inner) => self.keep_value(&inner.expr),
            Expr::Paren(inner) => self.keep_value(&inner.expr),
            Expr::Group(inner) => self.keep_value(&inner.expr),
            Expr::Unary(inner) => self.keep_value(&inner.expr),
            Expr::MethodCall(call) => self.keep_value(&call.receiver),
            Expr::Call(call) => call.args.iter().for_each(|part| self.keep_value(part)),
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.keep_value(part)),
            Expr::Array(array) => array.elems.iter().for_each(|part| self.keep_value(part)),
            _ => {}
        }
    }
}

impl<'a> Visit<'a> for Asks<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let is_left_out = match item {
            syn::Item::Mod(item) => is_test(&item.attrs),
            syn::Item::Fn(item) => is_test(&item.attrs),
            syn::Item::Impl(item) => is_test(&item.attrs),
            _ => false,
        };
        if !is_left_out {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) {
            self.keep_value(&binary.left);
            self.keep_value(&binary.right);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if ASKING.contains(&call.method.to_string().as_str()) {
            self.keep_value(&call.receiver);
            call.args.iter().for_each(|argument| self.keep_value(argument));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_pat(&mut self, pattern: &'a Pat) {
        if let Pat::Lit(literal) = pattern {
            self.keep(&literal.lit);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let is_matches = call.path.segments.last().is_some_and(|last| last.ident == "matches");
        let parts = match is_matches {
            true => matched.parse2(call.tokens.clone()),
            false => values.parse2(call.tokens.clone()),
        };
        let Ok((values, pattern)) = parts else { return };
        // The syntax lives here only; what is found in it is owned.
        let mut inner = Asks { names: self.names, found: Vec::new() };
        values.iter().for_each(|value| inner.visit_expr(value));
        pattern.iter().for_each(|pattern| inner.visit_pat(pattern));
        self.found.append(&mut inner.found);
    }
}

/// The arguments of `matches!`.
fn matched(input: syn::parse::ParseStream) -> syn::Result<(Vec<Expr>, Option<Pat>)> {
    let mut values = vec![input.parse()?];
    input.parse::<Token![,]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    if input.peek(Token![if]) {
        input.parse::<Token![if]>()?;
        values.push(input.parse()?);
    }
    input.parse::<Option<Token![,]>>()?;
    Ok((values, Some(pattern)))
}

/// The arguments of a macro that looks like a call.
fn values(input: syn::parse::ParseStream) -> syn::Result<(Vec<Expr>, Option<Pat>)> {
    let values = Punctuated::<Expr, Token![,]>::parse_terminated(input)?;
    Ok((values.into_iter().collect(), None))
}

//! Code as it is compiled outside of tests.

use super::attributes::is_for_tests;
use std::ops::RangeInclusive;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, ImplItem, Item, Stmt, TraitItem};

/// Takes out what is compiled for tests alone, and says which lines that was.
pub(super) fn without_tests(file: &syn::File) -> (syn::File, Vec<RangeInclusive<usize>>) {
    let mut file = file.clone();
    let mut taken = Taken::default();
    if is_for_tests(&file.attrs) {
        taken.lines.push(1..=usize::MAX);
        file.items.clear();
    }
    taken.visit_file_mut(&mut file);
    (file, taken.lines)
}

macro_rules! attributes_of {
    ($node:expr, $kind:ident: $($variant:ident)*) => {
        match $node {
            $($kind::$variant(inside) => inside.attrs.as_slice(),)*
            _ => &[],
        }
    };
}

fn of_item(item: &Item) -> &[Attribute] {
    attributes_of!(item, Item: Const Enum ExternCrate Fn ForeignMod Impl Macro Mod Static Struct Trait TraitAlias Type Union Use)
}

fn of_statement(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => of_item(item),
        Stmt::Macro(one) => &one.attrs,
        Stmt::Expr(expression, _) => attributes_of!(
            expression, Expr: Assign Binary Block Call ForLoop If Let Loop Macro Match MethodCall Return Try Unsafe While
        ),
    }
}

#[derive(Default)]
struct Taken {
    lines: Vec<RangeInclusive<usize>>,
}

impl Taken {
    /// Whether something stays. Its lines are noted where it does not.
    fn stays(&mut self, node: &impl Spanned, attributes: &[Attribute]) -> bool {
        let goes = is_for_tests(attributes);
        if goes {
            self.lines.push(node.span().start().line..=node.span().end().line);
        }
        !goes
    }

    fn thin<T: Spanned, P: Default>(&mut self, list: &mut Punctuated<T, P>, of: impl Fn(&T) -> &[Attribute]) {
        if list.iter().any(|one| is_for_tests(of(one))) {
            let all = std::mem::take(list).into_iter();
            *list = all.filter(|one| self.stays(one, of(one))).collect();
        }
    }
}

impl VisitMut for Taken {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| self.stays(item, of_item(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| self.stays(item, of_item(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| self.stays(statement, of_statement(statement)));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_item_impl_mut(&mut self, one: &mut syn::ItemImpl) {
        one.items.retain(|item| self.stays(item, attributes_of!(item, ImplItem: Const Fn Macro Type)));
        visit_mut::visit_item_impl_mut(self, one);
    }

    fn visit_item_trait_mut(&mut self, one: &mut syn::ItemTrait) {
        one.items.retain(|item| self.stays(item, attributes_of!(item, TraitItem: Const Fn Macro Type)));
        visit_mut::visit_item_trait_mut(self, one);
    }

    fn visit_expr_match_mut(&mut self, one: &mut syn::ExprMatch) {
        one.arms.retain(|arm| self.stays(arm, &arm.attrs));
        visit_mut::visit_expr_match_mut(self, one);
    }

    fn visit_fields_named_mut(&mut self, fields: &mut syn::FieldsNamed) {
        self.thin(&mut fields.named, |field| &field.attrs);
        visit_mut::visit_fields_named_mut(self, fields);
    }

    fn visit_expr_struct_mut(&mut self, one: &mut syn::ExprStruct) {
        self.thin(&mut one.fields, |field| &field.attrs);
        visit_mut::visit_expr_struct_mut(self, one);
    }

    fn visit_item_enum_mut(&mut self, one: &mut syn::ItemEnum) {
        self.thin(&mut one.variants, |variant| &variant.attrs);
        visit_mut::visit_item_enum_mut(self, one);
    }
}

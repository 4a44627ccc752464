//! Names that a Rust source declares: items, fields, parameters, variables, aliases and the module
//! of the file itself. Uses of names are omitted, since other crates may have declared them.

use syn::Ident;
use syn::visit::{self, Visit};

/// Returns the declared names with their lines, including those of tests.
pub(super) fn declared(path: &str, syntax: &syn::File) -> Vec<(usize, String)> {
    let mut names = DeclaredNames(Vec::new());
    names.visit_file(syntax);
    let module = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
    names.0.extend(module.map(|module| (1, module.to_owned())));
    names.0
}

struct DeclaredNames(Vec<(usize, String)>);

impl DeclaredNames {
    fn add(&mut self, name: &Ident) {
        self.0.push((name.span().start().line, name.to_string()));
    }
}

/// Defines methods that record the name of a node and visit its children.
macro_rules! record {
    ($($method:ident($node:ty): $($name:ident).+;)+) => {
        $(fn $method(&mut self, node: &'ast $node) {
            self.add(&node.$($name).+);
            visit::$method(self, node);
        })+
    };
}

impl<'ast> Visit<'ast> for DeclaredNames {
    record! {
        visit_item_mod(syn::ItemMod): ident;
        visit_item_struct(syn::ItemStruct): ident;
        visit_item_enum(syn::ItemEnum): ident;
        visit_item_trait(syn::ItemTrait): ident;
        visit_item_type(syn::ItemType): ident;
        visit_item_const(syn::ItemConst): ident;
        visit_item_static(syn::ItemStatic): ident;
        visit_variant(syn::Variant): ident;
        visit_item_fn(syn::ItemFn): sig.ident;
        visit_impl_item_fn(syn::ImplItemFn): sig.ident;
        visit_impl_item_const(syn::ImplItemConst): ident;
        visit_trait_item_fn(syn::TraitItemFn): sig.ident;
        visit_pat_ident(syn::PatIdent): ident;
        visit_use_rename(syn::UseRename): rename;
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|name| self.add(name));
        visit::visit_field(self, field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_has_a_name() {
        let source = "use a::B as C;\nstruct D { e: u8 }\nenum F { G }\n\
                      fn h(i: u8) { let (j, k) = l; }\n#[cfg(test)]\nmod m { const N: u8 = o; }\n";
        let found = declared("p/q.rs", &syn::parse_file(source).unwrap());
        let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["C", "D", "e", "F", "G", "h", "i", "j", "k", "m", "N", "q"]);
    }
}

//! Serialised names of the fields of types, from their Rust source by `syn`: struct fields and enum
//! variants with their serde attributes, and the types to which they refer. A type with a manual
//! implementation of `Serialize` or `Deserialize`, or defined by a macro, is not followed further.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use syn::ext::IdentExt;
use syn::{
    Attribute, Data, DataEnum, DeriveInput, Fields, GenericArgument, PathArguments, Type, Variant,
};

/// Types with one type parameter that serde serialises as the inner value.
const TRANSPARENT: [&str; 7] = ["Option", "Box", "Arc", "Cow", "Spanned", "Mutex", "Rc"];
/// Types that are serialised as lists; a path marks their elements by `[]`.
const LISTS: [&str; 4] = ["Vec", "VecDeque", "BTreeSet", "ArrayVec"];
/// Types that are serialised as maps; a path marks their values by `.*`.
const MAPS: [&str; 2] = ["BTreeMap", "HashMap"];

/// Parsed source files of several crates, with the types that serde serialises.
#[derive(Default)]
pub(super) struct SerdeSources {
    files: BTreeMap<PathBuf, SourceFile>,
    /// Example values of types that macros define, by the name of the type; their fields are listed
    /// instead.
    values: BTreeMap<&'static str, Value>,
}

/// Lines `DOCUMENT: PATH` for the fields of several documents. A type with several fields is listed
/// where it occurs first; later occurrences refer to that path.
#[derive(Default)]
pub(super) struct FieldListing {
    pub(super) lines: Vec<String>,
    document: String,
    /// Types that contain the present one, to detect recursion.
    ancestors: Vec<TypeReference>,
    /// Path of the first occurrence of each listed type.
    first_paths: BTreeMap<TypeReference, String>,
}

impl FieldListing {
    fn add(&mut self, path: &str) {
        let line = format!("{}: {path}", self.document);
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Makes all occurrences of a type, except as the root of a document, refer to this path.
    pub(super) fn add_reference(&mut self, id: &TypeReference, path: &str) {
        self.first_paths.insert(id.clone(), path.to_owned());
    }

    /// Records the path of a type whose lines begin at index `start`, for references by later
    /// occurrences, unless repeating its lines is as short.
    fn note_shared(&mut self, id: &TypeReference, path: &str, start: usize) {
        let is_long = self.lines[start..].iter().any(|line| line.matches(" | ").count() > 7);
        if !path.is_empty() && (self.lines.len() > start + 2 || is_long) {
            self.first_paths.insert(id.clone(), format!("{}: {path}", self.document));
        }
    }
}

/// Types, imports and string constants of one source file.
#[derive(Default)]
struct SourceFile {
    types: BTreeMap<String, DeriveInput>,
    /// Segments of the module path from which each name is imported.
    imports: BTreeMap<String, Vec<String>>,
    /// Values of string constants.
    constants: BTreeMap<String, String>,
}

/// Reference to a type: path of its source file, and its name.
pub(super) type TypeReference = (PathBuf, String);

impl SerdeSources {
    /// Parses the source files of these crates, without tests. `values` has example values of the
    /// types that macros define.
    pub(super) fn read(crates: &[&str], values: BTreeMap<&'static str, Value>) -> Self {
        let mut sources = Self { values, ..Self::default() };
        for name in crates {
            sources.read_directory(&Path::new("..").join(name).join("src"));
        }
        sources
    }

    fn read_directory(&mut self, directory: &Path) {
        let entries = fs::read_dir(directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.ends_with("tests") || path.ends_with("tests.rs") {
                continue;
            }
            if path.is_dir() {
                self.read_directory(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                self.files.insert(path, SourceFile::parse(&text));
            }
        }
    }

    /// Returns the JSON documents of a crate: its serialised structs with a field `schema` that no
    /// other one contains, each with its schema. That is the value of the constant that the comment
    /// of the field names, or of a schema constant that the file defines or imports; `None` if not
    /// found.
    pub(super) fn documents(&self, name: &str) -> Vec<(Option<String>, TypeReference)> {
        let directory = Path::new("..").join(name).join("src");
        let of_crate = self.files.iter().filter(|(path, _)| path.starts_with(&directory));
        let mut documents = Vec::new();
        for (path, file) in of_crate {
            let has_schema = |input: &&DeriveInput| {
                derives(input, "Serialize") && fields_of(input).any(|(name, _)| name == "schema")
            };
            for input in file.types.values().filter(has_schema) {
                let own = || file.constants.keys().find(|name| is_schema_constant(name)).cloned();
                let imported =
                    || file.imports.keys().find(|name| is_schema_constant(name)).cloned();
                let constant = schema_constant(input).or_else(own).or_else(imported);
                let schema = constant.and_then(|name| self.constant(file, &name));
                documents.push((schema, (path.clone(), input.ident.to_string())));
            }
        }
        let parts: Vec<TypeReference> =
            documents.iter().flat_map(|(_, id)| self.parts(id)).collect();
        documents.retain(|(_, id)| !parts.contains(id));
        documents
    }

    /// Returns the value of a string constant of this file, otherwise of any other file.
    fn constant(&self, file: &SourceFile, name: &str) -> Option<String> {
        let mut files = [file].into_iter().chain(self.files.values());
        files.find_map(|file| file.constants.get(name)).cloned()
    }

    /// Returns the root type of a TOML file: the only deserialised struct of the source file that
    /// no other one contains.
    pub(super) fn file_document(&self, path: &str) -> TypeReference {
        let path = Path::new("..").join(path);
        let file = self.files.get(&path).unwrap_or_else(|| panic!("no file {}", path.display()));
        let ids: Vec<TypeReference> = file
            .types
            .values()
            .filter(|input| derives(input, "Deserialize") && matches!(input.data, Data::Struct(_)))
            .map(|input| (path.clone(), input.ident.to_string()))
            .collect();
        let parts: Vec<TypeReference> = ids.iter().flat_map(|id| self.parts(id)).collect();
        let mut roots = ids.into_iter().filter(|id| !parts.contains(id));
        match (roots.next(), roots.next()) {
            (Some(root), None) => root,
            found => panic!("{}: one document expected, found {found:?}", path.display()),
        }
    }

    /// Returns the types of the same file to which a type refers, directly or indirectly.
    fn parts(&self, (path, name): &TypeReference) -> Vec<TypeReference> {
        let mut found: Vec<TypeReference> = Vec::new();
        let mut open = vec![name.clone()];
        while let Some(name) = open.pop() {
            let Some(input) = self.files[path].types.get(&name) else { continue };
            for referred in fields_of(input).flat_map(|(_, kind)| referred_types(kind)) {
                let id = (path.clone(), referred);
                if self.files[path].types.contains_key(&id.1) && !found.contains(&id) {
                    open.push(id.1.clone());
                    found.push(id);
                }
            }
        }
        found
    }

    /// Adds the paths of all fields of a document to a listing, with the possible values of enums.
    pub(super) fn list_fields(
        &self,
        document: &str,
        id: &TypeReference,
        listing: &mut FieldListing,
    ) {
        document.clone_into(&mut listing.document);
        self.walk(id, "", listing);
    }

    fn walk(&self, id: &TypeReference, path: &str, listing: &mut FieldListing) {
        let input = &self.files[&id.0].types[&id.1];
        let is_serialised = derives(input, "Serialize") || derives(input, "Deserialize");
        if !is_serialised || listing.ancestors.contains(id) {
            return listing.add(path);
        }
        if let Some(first) = listing.first_paths.get(id).filter(|_| !path.is_empty()) {
            let line = format!("{path} as {first}");
            return listing.add(&line);
        }
        let start = listing.lines.len();
        listing.ancestors.push(id.clone());
        let container = SerdeAttributes::from_attributes(&input.attrs);
        match &input.data {
            Data::Struct(data) => self.walk_fields(&id.0, &data.fields, &container, path, listing),
            Data::Enum(data) => self.walk_variants(&id.0, data, &container, path, listing),
            Data::Union(_) => listing.add(path),
        }
        listing.ancestors.pop();
        listing.note_shared(id, path, start);
    }

    fn walk_variants(
        &self,
        file: &Path,
        data: &DataEnum,
        container: &SerdeAttributes,
        path: &str,
        listing: &mut FieldListing,
    ) {
        let is_tagged = container.tag.is_some();
        let variants = data.variants.iter().map(|variant| {
            let own = SerdeAttributes::from_attributes(&variant.attrs);
            (own.serialised_name(&variant.ident.unraw().to_string(), container, true), variant, own)
        });
        let variants: Vec<_> = variants.collect();
        let values = variants.iter().filter(|(_, variant, _)| is_tagged || is_unit(variant));
        let values: Vec<&str> = values.map(|(name, ..)| name.as_str()).collect();
        if !values.is_empty() && !container.is_untagged {
            let named =
                container.tag.as_ref().map_or_else(|| path.to_owned(), |tag| join(path, tag));
            listing.add(&format!("{named} = {}", values.join(" | ")));
        }
        for (name, variant, own) in variants.iter().filter(|(_, variant, _)| !is_unit(variant)) {
            let is_named = !is_tagged && !container.is_untagged;
            let inner = if is_named { join(path, name) } else { path.to_owned() };
            let rename_all = own.rename_all.clone().or_else(|| container.rename_fields.clone());
            let own = SerdeAttributes { rename_all, ..own.clone() };
            self.walk_fields(file, &variant.fields, &own, &inner, listing);
        }
    }

    fn walk_fields(
        &self,
        file: &Path,
        fields: &Fields,
        container: &SerdeAttributes,
        path: &str,
        listing: &mut FieldListing,
    ) {
        let is_newtype = matches!(fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1);
        for (index, field) in fields.iter().enumerate() {
            let own = SerdeAttributes::from_attributes(&field.attrs);
            if own.is_skipped {
                continue;
            }
            let inner = match &field.ident {
                _ if is_newtype || container.is_transparent || own.is_flattened => path.to_owned(),
                Some(ident) => {
                    join(path, &own.serialised_name(&ident.unraw().to_string(), container, false))
                }
                None => format!("{path}[{index}]"),
            };
            if own.is_converted {
                listing.add(&inner);
            } else {
                self.walk_type(file, &field.ty, &inner, listing);
            }
        }
    }

    fn walk_type(&self, file: &Path, kind: &Type, path: &str, listing: &mut FieldListing) {
        let list = format!("{path}[]");
        match kind {
            Type::Reference(reference) => self.walk_type(file, &reference.elem, path, listing),
            Type::Array(array) => self.walk_type(file, &array.elem, &list, listing),
            Type::Slice(slice) => self.walk_type(file, &slice.elem, &list, listing),
            Type::Tuple(tuple) => {
                for (index, kind) in tuple.elems.iter().enumerate() {
                    self.walk_type(file, kind, &format!("{path}[{index}]"), listing);
                }
            }
            Type::Path(named) => {
                let Some(segment) = named.path.segments.last() else { return listing.add(path) };
                let name = segment.ident.to_string();
                let name = name.as_str();
                match type_arguments(&segment.arguments).as_slice() {
                    [inner] if TRANSPARENT.contains(&name) => {
                        self.walk_type(file, inner, path, listing);
                    }
                    [inner] if LISTS.contains(&name) => self.walk_type(file, inner, &list, listing),
                    [key, inner] if MAPS.contains(&name) => {
                        if let Some(keys) = self.enum_values(file, key) {
                            listing.add(&format!("{path}.* keys = {}", keys.join(" | ")));
                        }
                        self.walk_type(file, inner, &format!("{path}.*"), listing);
                    }
                    _ => self.walk_named(file, name, path, listing),
                }
            }
            _ => listing.add(path),
        }
    }

    fn walk_named(&self, file: &Path, name: &str, path: &str, listing: &mut FieldListing) {
        match self.resolve(file, name) {
            Some(id) => self.walk(&id, path, listing),
            None => match self.values.get(name) {
                Some(value) => walk_value(value, path, listing),
                None => listing.add(path),
            },
        }
    }

    /// Returns the serialised names of the variants of an enum without fields; `None` for other
    /// types.
    fn enum_values(&self, file: &Path, kind: &Type) -> Option<Vec<String>> {
        let Type::Path(named) = kind else { return None };
        let (file, name) = self.resolve(file, &named.path.segments.last()?.ident.to_string())?;
        let input = &self.files[&file].types[&name];
        let Data::Enum(data) = &input.data else { return None };
        let container = SerdeAttributes::from_attributes(&input.attrs);
        let name = |variant: &Variant| {
            let own = SerdeAttributes::from_attributes(&variant.attrs);
            own.serialised_name(&variant.ident.unraw().to_string(), &container, true)
        };
        data.variants.iter().map(|variant| is_unit(variant).then(|| name(variant))).collect()
    }

    /// Resolves the name of a type in a file to its definition, in the file itself or by its
    /// imports; `None` if the sources do not define it.
    fn resolve(&self, file: &Path, name: &str) -> Option<TypeReference> {
        let source = &self.files[file];
        if source.types.contains_key(name) {
            return Some((file.to_owned(), name.to_owned()));
        }
        let import = source.imports.get(name)?;
        let root = match import.first()?.strip_prefix("horolog_") {
            Some(other) => Path::new("..").join(other).join("src"),
            None => file.iter().take(3).collect(),
        };
        let defining = |(path, other): &(&PathBuf, &SourceFile)| {
            path.starts_with(&root) && other.types.contains_key(name)
        };
        let mut candidates: Vec<&PathBuf> =
            self.files.iter().filter(defining).map(|(path, _)| path).collect();
        for module in import {
            let is_of_module = |path: &&PathBuf| {
                path.iter().any(|part| Path::new(part).file_stem() == Some(module.as_ref()))
            };
            let narrowed: Vec<_> = candidates.iter().copied().filter(is_of_module).collect();
            if !narrowed.is_empty() {
                candidates = narrowed;
            }
        }
        match candidates.as_slice() {
            [path] => Some(((*path).clone(), name.to_owned())),
            // The crate's root may re-export it from another crate.
            [] => Some(root.join("lib.rs"))
                .filter(|library| library != file && self.files.contains_key(library))
                .and_then(|library| self.resolve(&library, name)),
            several => panic!("{}: several types '{name}': {several:?}", file.display()),
        }
    }
}

impl SourceFile {
    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for item in syn::parse_file(text).unwrap().items {
            match item {
                syn::Item::Struct(item) => file.add(item.into()),
                syn::Item::Enum(item) => file.add(item.into()),
                syn::Item::Use(item) => file.import(&item.tree, &mut Vec::new()),
                syn::Item::Const(item) => {
                    if let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) =
                        *item.expr
                    {
                        file.constants.insert(item.ident.to_string(), text.value());
                    }
                }
                _ => {}
            }
        }
        file
    }

    fn add(&mut self, input: DeriveInput) {
        self.types.insert(input.ident.to_string(), input);
    }

    fn import(&mut self, tree: &syn::UseTree, above: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                above.push(path.ident.to_string());
                self.import(&path.tree, above);
                above.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, above));
            }
            syn::UseTree::Name(name) => {
                self.imports.insert(name.ident.to_string(), above.clone());
            }
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }
}

/// Serde attributes of a type, variant or field.
#[derive(Debug, Default, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is an attribute of its own")]
struct SerdeAttributes {
    rename: Option<String>,
    rename_all: Option<String>,
    rename_fields: Option<String>,
    tag: Option<String>,
    is_untagged: bool,
    is_transparent: bool,
    is_flattened: bool,
    is_skipped: bool,
    /// True if a conversion (`with`, `into`, `try_from`…) serialises the value in another form.
    is_converted: bool,
}

impl SerdeAttributes {
    fn from_attributes(attributes: &[Attribute]) -> Self {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            let parsed = attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let text = match meta.value() {
                    Ok(value) => Some(value.parse::<syn::LitStr>()?.value()),
                    Err(_) => None,
                };
                match name.as_str() {
                    "rename" => found.rename = text,
                    "rename_all" => found.rename_all = text,
                    "rename_all_fields" => found.rename_fields = text,
                    "tag" => found.tag = text,
                    "untagged" => found.is_untagged = true,
                    "transparent" => found.is_transparent = true,
                    "flatten" => found.is_flattened = true,
                    "skip" | "skip_serializing" => found.is_skipped = true,
                    "with" | "serialize_with" | "deserialize_with" | "into" | "try_from" => {
                        found.is_converted = true;
                    }
                    _ => {}
                }
                Ok(())
            });
            parsed.unwrap_or_else(|error| panic!("serde attribute: {error}"));
        }
        found
    }

    /// Returns the serialised name of a field or variant with these attributes in a container.
    fn serialised_name(&self, name: &str, container: &Self, is_variant: bool) -> String {
        if let Some(rename) = &self.rename {
            return rename.clone();
        }
        let case = container.rename_all.as_deref();
        let words = if is_variant { variant_words(name) } else { name.to_owned() };
        match case {
            Some("kebab-case") => words.replace('_', "-"),
            Some("snake_case") => words,
            Some("lowercase") if is_variant => name.to_lowercase(),
            None => name.to_owned(),
            Some(other) => panic!("rename_all = {other:?}"),
        }
    }
}

fn is_unit(variant: &Variant) -> bool {
    matches!(variant.fields, Fields::Unit)
}

/// Adds the paths of all fields of an example value.
fn walk_value(value: &Value, path: &str, listing: &mut FieldListing) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                walk_value(value, &join(path, key), listing);
            }
        }
        Value::Array(list) => match list.first() {
            Some(value) => walk_value(value, &format!("{path}[]"), listing),
            None => listing.add(&format!("{path}[]")),
        },
        _ => listing.add(path),
    }
}

/// Converts the name of a variant to snake case, as serde does.
fn variant_words(name: &str) -> String {
    let mut words = String::new();
    for (index, letter) in name.chars().enumerate() {
        if index > 0 && letter.is_uppercase() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn is_schema_constant(constant: &str) -> bool {
    constant == "SCHEMA" || constant.ends_with("_SCHEMA")
}

/// Returns the name of the constant that the comment of the field `schema` links to, such as
/// `LOAD_SCHEMA` for "[`crate::LOAD_SCHEMA`].".
fn schema_constant(input: &DeriveInput) -> Option<String> {
    let Data::Struct(data) = &input.data else { return None };
    let field = data
        .fields
        .iter()
        .find(|field| field.ident.as_ref().is_some_and(|ident| ident == "schema"))?;
    let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    docs.filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) => Some(literal_text(&pair.value)),
        _ => None,
    })
    .find_map(|text| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.find(|word| word.ends_with("_SCHEMA")).map(ToOwned::to_owned)
    })
}

fn literal_text(value: &syn::Expr) -> String {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
        _ => String::new(),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn derives(input: &DeriveInput, name: &str) -> bool {
    input.attrs.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("derive") => {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == name)
        }
        _ => false,
    })
}

/// Returns names and types of the fields of a struct, or of all variants of an enum; tuple fields
/// have empty names.
fn fields_of(input: &DeriveInput) -> impl Iterator<Item = (String, &Type)> {
    let all: Vec<&Fields> = match &input.data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => data.variants.iter().map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    all.into_iter()
        .flatten()
        .map(|field| (field.ident.as_ref().map(ToString::to_string).unwrap_or_default(), &field.ty))
}

/// Returns the names of a type and of its type arguments and elements.
fn referred_types(kind: &Type) -> Vec<String> {
    match kind {
        Type::Reference(reference) => referred_types(&reference.elem),
        Type::Array(array) => referred_types(&array.elem),
        Type::Slice(slice) => referred_types(&slice.elem),
        Type::Tuple(tuple) => tuple.elems.iter().flat_map(referred_types).collect(),
        Type::Path(named) => {
            let Some(segment) = named.path.segments.last() else { return Vec::new() };
            let inner = type_arguments(&segment.arguments).into_iter().flat_map(referred_types);
            inner.chain([segment.ident.to_string()]).collect()
        }
        _ => Vec::new(),
    }
}

fn type_arguments(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    types.collect()
}

/// Lists the documents of crate `a` in source files, each a pair of path and text.
fn listed(files: &[(&str, &str)]) -> Vec<String> {
    let parsed = files.iter().map(|(path, text)| (PathBuf::from(path), SourceFile::parse(text)));
    let sources = SerdeSources { files: parsed.collect(), ..SerdeSources::default() };
    let mut listing = FieldListing::default();
    for (schema, id) in sources.documents("a") {
        sources.list_fields(&schema.unwrap(), &id, &mut listing);
    }
    listing.lines
}

#[test]
fn fields_have_their_serialised_names() {
    let text = r#"
        use crate::part::Part;
        pub const A_SCHEMA: &str = "a/1";
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        struct Document<'a> {
            schema: &'a str,
            two_words: Option<u8>,
            #[serde(rename = "other")]
            renamed: [u8; 2],
            #[serde(skip)]
            hidden: u8,
            #[serde(flatten)]
            part: Part,
            by_kind: BTreeMap<Kind, u8>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Kind { First, SecondOne }
        struct NotSerialised { schema: u8 }
    "#;
    let part = "#[derive(Serialize)] pub struct Part { values: Vec<Value> } \
                #[derive(Serialize)] #[serde(tag = \"type\")] enum Value { A { b: u8 }, C }";
    let lines = listed(&[("../a/src/lib.rs", text), ("../a/src/part.rs", part)]);
    let expected = [
        "a/1: schema",
        "a/1: two-words",
        "a/1: other[]",
        "a/1: values[].type = A | C",
        "a/1: values[].b",
        "a/1: by-kind.* keys = first | secondone",
        "a/1: by-kind.*",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_long_type_is_listed_once() {
    let text = r#"
        pub const SCHEMA: &str = "a/1";
        #[derive(Serialize)]
        struct Document { schema: u8, times: Vec<Times>, total: Times }
        #[derive(Serialize)]
        struct Times { p50: u8, p90: u8, p99: u8 }
    "#;
    let lines = listed(&[("../a/src/lib.rs", text)]);
    assert_eq!(lines.last().unwrap(), "a/1: total as a/1: times[]");
    assert_eq!(lines.len(), 5, "{lines:?}");
}

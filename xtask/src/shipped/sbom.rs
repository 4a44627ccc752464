//! Bill of materials in `CycloneDX` 1.5: the binary, its parts with their licences, checksums of
//! the crates' archives, and dependencies. Libraries of the system that are loaded at run time are
//! in the dependencies of the Debian package instead.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Part, Parts};

/// SHA-256 checksums of the crates' archives, by name and version.
pub(super) type Checksums = BTreeMap<(String, String), String>;

#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Returns the checksums in Cargo.lock.
pub(super) fn checksums(lock: &str) -> Result<Checksums> {
    let lock: LockFile = toml::from_str(lock).context("cannot read Cargo.lock")?;
    let summed = lock.package.into_iter().filter_map(|locked| {
        let LockedPackage { name, version, checksum } = locked;
        Some(((name, version), checksum?))
    });
    Ok(summed.collect())
}

/// Returns the bill of materials.
pub(super) fn bill(parts: &Parts, sums: &Checksums, timestamp: Option<&str>) -> Result<Value> {
    let (binary, others) = parts.list.split_first().context("no binary")?;
    let mut metadata = json!({
        "tools": {"components": [{"type": "application", "name": "cargo xtask sbom"}]},
        "component": {
            "type": "application",
            "bom-ref": binary.reference(),
            "name": "horolog",
            "version": binary.version,
            "licenses": [{"expression": binary.licence}],
        },
    });
    if let Some(timestamp) = timestamp {
        metadata["timestamp"] = timestamp.into();
    }
    let uses = parts.uses.iter().map(|(from, to)| json!({"ref": from, "dependsOn": to}));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": metadata,
        "components": others.iter().map(|part| component(part, sums)).collect::<Vec<_>>(),
        "dependencies": uses.collect::<Vec<_>>(),
    }))
}

fn component(part: &Part, sums: &Checksums) -> Value {
    let mut component = Map::new();
    let mut set = |name: &str, value: Value| component.insert(name.to_owned(), value);
    set("type", "library".into());
    set("bom-ref", part.reference().into());
    set("name", part.name.as_str().into());
    set("version", part.version.as_str().into());
    set("licenses", json!([{"expression": part.licence}]));
    if let Some(purl) = &part.purl {
        set("purl", purl.as_str().into());
    }
    if let Some(sum) = sums.get(&(part.name.clone(), part.version.clone())) {
        set("hashes", json!([{"alg": "SHA-256", "content": sum}]));
    }
    if let Some(home) = &part.home {
        set("externalReferences", json!([{"type": "website", "url": home}]));
    }
    Value::Object(component)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cyclonedx_bom::prelude::{Bom, SpecVersion, Validate as _};

    use super::*;

    /// Returns a text that must be present and not empty.
    fn word<'a>(value: &'a Value, name: &str) -> &'a str {
        value[name].as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| {
            panic!("no {name}: {value}");
        })
    }

    fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
        value[name].as_array().unwrap_or_else(|| panic!("no {name}: {value}"))
    }

    /// Returns the errors that the library of the specification finds in a bill.
    fn bill_errors(bill: &Value) -> Vec<String> {
        match Bom::parse_json_value(bill.clone()) {
            Ok(bill) if bill.validate_version(SpecVersion::V1_5).passed() => Vec::new(),
            Ok(bill) => vec![format!("{:?}", bill.validate_version(SpecVersion::V1_5))],
            Err(error) => vec![error.to_string()],
        }
    }

    /// Checks that a bill is valid by `CycloneDX` 1.5, and complete.
    fn check_bill(bill: &Value) {
        assert_eq!(bill_errors(bill), [""; 0]);
        assert_eq!(word(bill, "bomFormat"), "CycloneDX");
        assert_eq!(word(bill, "specVersion"), "1.5");
        assert!(bill["version"].as_u64().is_some_and(|version| version >= 1));
        let whole = &bill["metadata"]["component"];
        let mut references = BTreeSet::new();
        for component in list(bill, "components").iter().chain([whole]) {
            assert!(["application", "library"].contains(&word(component, "type")));
            word(component, "name");
            word(component, "version");
            assert!(references.insert(word(component, "bom-ref")), "twice: {component}");
            let [licence] = list(component, "licenses") else { panic!("{component}") };
            spdx::Expression::parse(word(licence, "expression")).unwrap();
            for hash in component["hashes"].as_array().into_iter().flatten() {
                assert_eq!(word(hash, "alg"), "SHA-256");
                let sum = word(hash, "content");
                assert!(sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()), "{sum}");
            }
        }
        let dependencies = list(bill, "dependencies");
        for dependency in dependencies {
            for used in list(dependency, "dependsOn") {
                assert!(references.contains(used.as_str().unwrap()), "unknown reference {used}");
            }
        }
        let from: BTreeSet<_> = dependencies.iter().map(|entry| word(entry, "ref")).collect();
        assert_eq!(from, references);
    }

    #[test]
    fn the_bill_of_the_binary_is_complete() {
        let metadata = super::super::metadata().unwrap();
        let parts = super::super::parts(&metadata).unwrap();
        let bill = super::super::bill(&parts, Some("2026-01-31T12:00:00Z")).unwrap();
        check_bill(&bill);
        assert_eq!(word(&bill["metadata"], "timestamp"), "2026-01-31T12:00:00Z");
        let components = list(&bill, "components");
        let named = |name| components.iter().find(|part| part["name"] == name).unwrap();
        for part in components
            .iter()
            .filter(|part| part["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/")))
        {
            assert_eq!(list(part, "hashes").len(), 1, "{part}");
        }
        assert!(word(named("libbpf-sys"), "purl").contains("%2B"));
        let uses = list(&bill, "dependencies");
        let within = |part: &Value| {
            uses.iter().find(|entry| entry["ref"] == part["bom-ref"]).unwrap()["dependsOn"].clone()
        };
        let libbpf = &named("libbpf")["bom-ref"];
        assert!(within(named("libbpf-sys")).as_array().unwrap().contains(libbpf));
    }

    #[test]
    fn an_invalid_bill_is_detected() {
        let metadata = super::super::metadata().unwrap();
        let parts = super::super::parts(&metadata).unwrap();
        let bill = super::super::bill(&parts, None).unwrap();
        let changed = |path: &str, to: Value| {
            let mut bill = bill.clone();
            *bill.pointer_mut(path).unwrap() = to;
            bill_errors(&bill).len()
        };
        assert_eq!(changed("/version", 2.into()), 0);
        for (path, to) in [
            ("/specVersion", "1.9".into()),
            ("/components/0/type", "book".into()),
            ("/components/0/licenses/0/expression", "as you like".into()),
            ("/components/0/name", Value::Null),
            ("/dependencies/0/ref", "unknown".into()),
        ] {
            assert_eq!(changed(path, to), 1, "{path}");
        }
    }

    #[test]
    fn packages_without_a_checksum_are_omitted() {
        let lock = "version = 4\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\
                    [[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n";
        let sums = checksums(lock).unwrap();
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".to_owned(), "1.0.0".to_owned())], "ff");
        assert!(checksums("nothing").is_err());
    }
}

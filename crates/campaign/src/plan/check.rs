//! Consistency check of a plan's roles: each named role exists, no `for-each` chain is circular,
//! and references are to existing instances.

use std::collections::BTreeSet;

use super::{INSTANCES_MAX, InstanceSelector, Plan, Role, RoleInstanceSpec, TemplateReference};
use crate::file_error::FileContentError;
use crate::id::RoleName;

pub(super) fn check_consistency(plan: &Plan) -> Result<(), FileContentError> {
    let mut visited = BTreeSet::new();
    if let Some(role) = plan.roles.iter().find(|role| !visited.insert(&role.name)) {
        return Err(role_error(role, format!("role '{}' occurs twice", role.name)));
    }
    plan.roles.iter().try_for_each(|role| check_instances(plan, role))?;
    plan.roles.iter().try_for_each(|role| check_references(plan, role))?;
    if plan.roles.iter().all(|role| role.kind.is_service()) {
        let reason = "no role measures: all are services, or the plan has none";
        return Err(FileContentError::new(None, reason));
    }
    let all = plan.instances();
    if all > INSTANCES_MAX {
        let reason = format!("its roles have {all} instances; {INSTANCES_MAX} are supported");
        return Err(FileContentError::new(None, reason));
    }
    Ok(())
}

fn role_error(role: &Role, reason: String) -> FileContentError {
    FileContentError::new(Some(role.line), reason)
}

fn find_role<'a>(
    plan: &'a Plan,
    role: &Role,
    name: &RoleName,
) -> Result<&'a Role, FileContentError> {
    plan.role(name).ok_or_else(|| role_error(role, unknown_role_text(plan, name)))
}

fn unknown_role_text(plan: &Plan, name: &RoleName) -> String {
    let names: Vec<_> = plan.roles.iter().map(|role| role.name.as_str()).collect();
    format!("unknown role or parameter '{name}'; the roles are {}", names.join(", "))
}

fn check_instances(plan: &Plan, role: &Role) -> Result<(), FileContentError> {
    let name = &role.name;
    match &role.instances {
        RoleInstanceSpec::Count { apart_from, .. } => apart_from.iter().try_for_each(|other| {
            if other == name {
                let reason = format!("instances of '{name}' are on different agents already");
                return Err(role_error(role, reason));
            }
            match find_role(plan, role, other)?.instances {
                RoleInstanceSpec::Count { .. } => Ok(()),
                _ => Err(role_error(
                    role,
                    format!("'{other}' uses the agents of another role; name that role"),
                )),
            }
        }),
        RoleInstanceSpec::ForEach(other) | RoleInstanceSpec::ForEachPair(other) => {
            check_acyclic(plan, role)?;
            if matches!(find_role(plan, role, other)?.instances, RoleInstanceSpec::ForEachPair(_)) {
                let reason = format!("'{other}' is itself for each pair; name a role that is not");
                return Err(role_error(role, reason));
            }
            if plan.count(name) == 0 {
                return Err(role_error(
                    role,
                    format!("pairs of '{other}' need two instances of it; it has one"),
                ));
            }
            Ok(())
        }
    }
}

/// Checks that the `for-each` chain of a role is not circular, so that it ends at a role with a
/// count.
fn check_acyclic(plan: &Plan, role: &Role) -> Result<(), FileContentError> {
    let mut current = role;
    let mut visited = BTreeSet::from([&role.name]);
    while let RoleInstanceSpec::ForEach(other) | RoleInstanceSpec::ForEachPair(other) =
        &current.instances
    {
        if !visited.insert(other) {
            let reason = format!("the for-each of '{}' and '{other}' is circular", role.name);
            return Err(role_error(role, reason));
        }
        current = find_role(plan, role, other)?;
    }
    Ok(())
}

fn check_references(plan: &Plan, role: &Role) -> Result<(), FileContentError> {
    for option in &role.options {
        for reference in option.values.iter().flat_map(super::ValueTemplate::references) {
            let wrong = |reason: String| FileContentError::new(Some(option.line), reason);
            check_reference(plan, role, reference).map_err(wrong)?;
        }
    }
    Ok(())
}

fn check_reference(plan: &Plan, role: &Role, reference: &TemplateReference) -> Result<(), String> {
    match reference {
        TemplateReference::SelfAddress | TemplateReference::Instance => Ok(()),
        TemplateReference::From | TemplateReference::To => match role.instances {
            RoleInstanceSpec::ForEachPair(_) => Ok(()),
            _ => {
                Err("{from} and {to} are the ends of a pair; this role has no for-each-pair".into())
            }
        },
        TemplateReference::Role(name, which) => {
            if plan.role(name).is_none() {
                return Err(unknown_role_text(plan, name));
            }
            let count = plan.count(name);
            match which {
                InstanceSelector::One(number) if u64::from(number.get()) > count => Err(format!(
                    "'{{{name}.{number}}}' does not exist: '{name}' has {count} instances"
                )),
                _ => Ok(()),
            }
        }
    }
}

//! What a plan says, and what is wrong with one, by line.

use proptest::prelude::*;

use super::*;

const PLAN: &str = r#"schema = "horolog.plan/2"
name = "ntp-saturation"
description = """One server,   loaded
by many."""
duration-max = "{time}"

[parameters]
generators = 2
rate = "100k"
time = "1m"

[[role]]
name = "server"
kind = "serve"
labels = { site = "a" }
[role.options]
listen = "{self}:123"
local = true

[[role]]
name = "load"
kind = "load-ntp"
count = "{generators}"
apart-from = ["server"]
[role.options]
target = "{server}:123"
rate = "1k-{rate}"

[[role]]
name = "timer"
kind = "host-timer"
for-each = "load"
"#;

fn settings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn name(text: &str) -> RoleName {
    text.parse().unwrap()
}

#[test]
fn a_plan_is_read() {
    let plan = Plan::parse(PLAN, &[]).unwrap();
    assert_eq!(
        (&*plan.name, &*plan.description),
        ("ntp-saturation", "One server, loaded by many.")
    );
    assert_eq!(plan.duration_max, Duration::from_mins(1));
    assert_eq!(plan.max_offset, OFFSET_MAX);
    assert_eq!(plan.count(&name("load")), 2);
    assert_eq!(plan.count(&name("timer")), 2);
    assert_eq!(plan.instances(), 5);
    let server = plan.role(&name("server")).unwrap();
    assert_eq!((server.line, server.kind), (13, RoleKind::Serve));
    let load = plan.role(&name("load")).unwrap();
    let rate = load.options.iter().find(|option| option.spec.name == "rate").unwrap();
    assert_eq!((rate.line, rate.values[0].as_text()), (27, Some("1k-100k")));
}

#[test]
fn parameters_are_set_from_outside() {
    let set = settings(&[("generators", "7"), ("time", "5s")]);
    let plan = Plan::parse(PLAN, &set).unwrap();
    assert_eq!(plan.count(&name("load")), 7);
    let others = PLAN.replace("count = \"{generators}\"", "count = \"{generators}-1\"");
    assert_eq!(Plan::parse(&others, &set).unwrap().count(&name("load")), 6);
    assert_eq!(plan.duration_max, Duration::from_secs(5));
    assert_ne!(plan.hash, Plan::parse(PLAN, &[]).unwrap().hash);
    let fault = Plan::parse(PLAN, &settings(&[("generator", "7")])).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "unknown parameter 'generator'; its parameters: generators, rate, time"
    );
    let fault = Plan::parse(PLAN, &settings(&[("generators", "many")])).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "line 23: a count is a number from 1 to 1024, or a difference as in 3-1"
    );
    let fault = Plan::parse(&others, &settings(&[("generators", "1")])).unwrap_err();
    let none = "line 23: the count '{generators}-1' evaluates to 0; it is from 1 to 1024";
    assert_eq!(fault.to_string(), none);
    let fault = Plan::parse(PLAN, &settings(&[("rate", "{time}")])).unwrap_err();
    assert!(fault.reason.contains("cannot contain references"), "{fault}");
}

/// A plan of one role that measures, with more behind it.
fn with(more: &str) -> String {
    format!("schema = \"horolog.plan/2\"\nname = \"p\"\n{more}")
}

const TIMER: &str = "[[role]]\nname = \"t\"\nkind = \"host-timer\"\n";

#[test]
fn errors_have_lines_and_hints() {
    let query = "[[role]]\nname = \"q\"\nkind = \"query\"\n[role.options]\n";
    for (text, line, named) in [
        ("schema = \"horolog.plan/1\"\nname = \"p\"\n".to_owned(), Some(1), "this version reads"),
        ("name = \"p\"\n".to_owned(), Some(1), "missing field `schema`"),
        (with("title = \"x\"\n"), Some(3), "unknown field `title`"),
        (with("duration-max = \"long\"\n"), Some(3), "write a time in seconds"),
        (with("duration-max = \"8d\"\n"), None, "at most 7d"),
        (with("[parameters]\nself = 1\n"), Some(4), "is not a valid parameter name"),
        (with("[parameters]\nx = [1]\n"), Some(4), "is a text or a number"),
        (with("[parameters]\nx = \"{y}\"\n"), Some(4), "cannot contain references"),
        (with(""), None, "no role measures"),
        (with("[[role]]\nname = \"T\"\nkind = \"query\"\n"), Some(4), "invalid role name"),
        (with("[[role]]\nname = \"self\"\nkind = \"query\"\n"), Some(4), "in use already"),
        (with("[[role]]\nname = \"t\"\nkind = \"shell\"\n"), Some(5), "unknown kind of role"),
        (with("[[role]]\nname = \"t\"\nkind = \"a\\nb\"\n"), Some(5), "kind of role 'a?b'"),
        (with(&format!("{TIMER}count = 0\n")), Some(6), "'0' evaluates to 0; it is from 1 to 1024"),
        (with(&format!("{TIMER}count = \"2-2\"\n")), Some(6), "'2-2' evaluates to 0; it is from 1"),
        (with(&format!("{TIMER}count = \"1-2\"\n")), Some(6), "'1-2' evaluates to -1; it is from"),
        (with(&format!("{TIMER}count = \"1+2\"\n")), Some(6), "a difference as in 3-1"),
        (with(&format!("{TIMER}count = \"{{n}}\"\n")), Some(6), "a count is a number from 1"),
        (with(&format!("{TIMER}for-each = \"u\"\n")), Some(4), "unknown role or parameter 'u'"),
        (with(&format!("{TIMER}for-each = \"t\"\n")), Some(4), "is circular"),
        (with(&format!("{TIMER}for-each-pair = \"t\"\n")), Some(4), "is circular"),
        (with(&format!("{TIMER}count = 1\nfor-each = \"t\"\n")), Some(4), "omit one of the two"),
        (with(&format!("{TIMER}apart-from = [\"t\"]\n")), Some(4), "different agents already"),
        (with(&format!("{TIMER}apart-from = [\"u\"]\n")), Some(4), "unknown role or parameter 'u'"),
        (with(&format!("{TIMER}{TIMER}")), Some(7), "role 't' occurs twice"),
        (with(&format!("{TIMER}[role.options]\nfile = \"x\"\n")), Some(7), "no option 'file'"),
        (with(&format!("{TIMER}[role.options]\ntime = \"0\"\n")), Some(7), "longer than 0"),
        (with(&format!("{TIMER}[role.options]\ntime = [\"1s\", \"2s\"]\n")), Some(7), "2 values"),
        (with(&format!("{TIMER}[role.options]\ntime = {{ x = 1 }}\n")), Some(7), "a list of such"),
        (with(query.trim_end_matches("[role.options]\n")), Some(4), "requires the option 'target'"),
        (with(&format!("{query}target = \"{{q.2}}\"\n")), Some(7), "'q' has 1 instances"),
        (with(&format!("{query}target = \"{{u}}\"\n")), Some(7), "unknown role or parameter 'u'"),
        (with(&format!("{query}target = \"{{to}}\"\n")), Some(7), "no for-each-pair"),
        (with(&format!("{query}target = \"{{u\"\n")), Some(7), "an unmatched brace"),
        (with(&format!("{query}target = \"x.example\"\n")), Some(7), "names are not supported"),
        (
            with(&format!("{query}target = \"{{q}}\"\ncount = \"{{q.all}}\"\n")),
            Some(8),
            "takes one value",
        ),
        (
            with(&format!(
                "{TIMER}[[role]]\nname = \"u\"\nkind = \"host-timer\"\nfor-each-pair = \"t\"\n"
            )),
            Some(7),
            "pairs of 't' need two instances of it; it has one",
        ),
    ] {
        let fault = Plan::parse(&text, &[]).unwrap_err();
        assert_eq!(fault.line, line, "{text}: {fault}");
        assert!(fault.reason.contains(named), "{text}: {fault}");
    }
}

#[test]
fn loops_over_several_roles_are_found() {
    let role = |name: &str, other: &str| {
        format!("[[role]]\nname = \"{name}\"\nkind = \"host-timer\"\nfor-each = \"{other}\"\n")
    };
    let text = with(&[role("a", "b"), role("b", "c"), role("c", "b")].concat());
    let fault = Plan::parse(&text, &[]).unwrap_err();
    assert!(fault.reason.contains("is circular"), "{fault}");
}

#[test]
fn the_largest_plans_are_bounded() {
    let fault = Plan::parse(&"#".repeat(PLAN_BYTES_MAX + 1), &[]).unwrap_err();
    assert!(fault.reason.contains("bytes"), "{fault}");
    let text = with(&TIMER.replace("\"t\"\n", "\"t\"\ncount = 200\n"));
    assert_eq!(Plan::parse(&text, &[]).unwrap().instances(), 200);
    let pairs = "[[role]]\nname = \"u\"\nkind = \"host-timer\"\nfor-each-pair = \"t\"\n";
    let fault = Plan::parse(&format!("{text}{pairs}"), &[]).unwrap_err();
    assert_eq!(fault.reason, "its roles have 40000 instances; 16384 are supported");
    let many: String =
        (0..=ROLES_MAX).map(|n| TIMER.replace("\"t\"", &format!("\"t{n}\""))).collect();
    assert!(Plan::parse(&with(&many), &[]).unwrap_err().reason.contains("up to 64 roles"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in "(?s).{0,120}|(schema = \"horolog.plan/2\"\n|name = \"a\"\n|\\[\\[role\\]\\]\n|kind = \"query\"\n|\\[role.options\\]\n|target = |\"\\{a\\}\"\n|for-each = \"a\"\n|count = 2\n){0,20}"
    ) {
        if let Err(fault) = Plan::parse(&text, &[]) {
            let lines = 1 + text.matches('\n').count();
            prop_assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault}");
            prop_assert!(!fault.reason.contains('\n'), "{fault}");
        }
    }

    /// What is written of a role is what is read of it.
    #[test]
    fn counts_and_options_are_read_as_written(
        count in 1_u32..=COUNT_MAX,
        ms in 1_u32..10_000,
        label in "[a-z]{1,8}",
    ) {
        let text = with(&format!(
            "{TIMER}count = {count}\nlabels = {{ {label} = \"x\" }}\n[role.options]\ntime = \"{ms}ms\"\n"
        ));
        let plan = Plan::parse(&text, &[]).unwrap();
        let role = &plan.roles[0];
        prop_assert_eq!(&role.instances, &RoleInstanceSpec::Count {
            count,
            labels: BTreeMap::from([(label, "x".to_owned())]),
            apart_from: vec![],
        });
        let time = format!("{ms}ms");
        prop_assert_eq!(role.options[0].values[0].as_text(), Some(&*time));
    }
}

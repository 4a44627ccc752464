//! Check of a task file for `horolog cycle run` in a plan. Only the keys of built-in work are
//! permitted, so no key can start a program. Values are checked by the command itself.

use toml::{Table, Value};

/// Permitted keys of a task. Keys that concern a command or a program are not among them.
const TASK_KEYS: &[&str] = &[
    "name", "period", "deadline", "offset", "policy", "priority", "core", "worst", "critical",
    "compute", "units", "message", "to", "barrier", "step", "polling",
];
const STEP_KEYS: &[&str] = &["compute", "units", "message", "to", "barrier"];
const POLLING_KEYS: &[&str] = &["rate", "compute", "units", "budget"];

/// Checks that a task file has at least one task, and only permitted keys.
///
/// # Errors
///
/// The first key that is not permitted, or the expected form.
pub(super) fn check_task_file(text: &str) -> Result<(), String> {
    let form = || "write the text of a task file, with a [[task]], or none".to_owned();
    let file: Table = text.parse().map_err(|_| form())?;
    check_keys(&file, &["task"])?;
    let tasks = file.get("task").and_then(Value::as_array).filter(|tasks| !tasks.is_empty());
    tasks.ok_or_else(form)?.iter().try_for_each(|task| {
        let task = task.as_table().ok_or_else(form)?;
        check_keys(task, TASK_KEYS)?;
        let steps = task.get("step").map(|steps| steps.as_array().ok_or_else(form)).transpose()?;
        for step in steps.into_iter().flatten() {
            check_keys(step.as_table().ok_or_else(form)?, STEP_KEYS)?;
        }
        match task.get("polling") {
            Some(polling) => check_keys(polling.as_table().ok_or_else(form)?, POLLING_KEYS),
            None => Ok(()),
        }
    })
}

fn check_keys(table: &Table, names: &[&str]) -> Result<(), String> {
    match table.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("'{name}' is not supported in plans; omit it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_built_in_may_be_in_a_plan_and_programs_may_not() {
        let task = "[[task]]\nname = \"a\"\nperiod = \"10ms\"\n";
        for more in [
            "compute = \"1ms\"\nbarrier = true\n",
            "[[task.step]]\nunits = 3\n[[task.step]]\nmessage = 64\n[[task]]\nname = \"b\"\n",
            "[task.polling]\nrate = 200\ncompute = \"1ms\"\nbudget = 4\n",
        ] {
            check_task_file(&format!("{task}{more}")).unwrap();
        }
        for (more, named) in [
            ("command = [\"/bin/sh\"]\n", "'command' is not supported in plans"),
            ("program = [\"/bin/sh\"]\n", "'program' is not"),
            ("[[task.step]]\ncommand = [\"/bin/sh\"]\n", "'command' is not"),
            ("[task.polling]\nprogram = [\"/bin/sh\"]\n", "'program' is not"),
            ("[other]\n", "'other' is not"),
            ("step = 1\n", "write the text of a task file"),
        ] {
            let why = check_task_file(&format!("{task}{more}")).unwrap_err();
            assert!(why.contains(named), "{more}: {why}");
        }
        for text in ["", "task = []", "task = 1", "task = [1]", "[[task]"] {
            assert!(
                check_task_file(text).unwrap_err().contains("write the text of a task file"),
                "{text}"
            );
        }
    }
}

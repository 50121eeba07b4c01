//! `[hooks]`: a moment and the function that is called then.

use super::{Hint, did_you_mean, hinted, is_dotted_name};
use crate::typed::{Hook, HookMoment};

/// Hooks of gunicorn with a counterpart of another name.
const OF_GUNICORN: [(&str, &str); 6] = [
    ("post_worker_init", "worker_ready"),
    ("worker_int", "worker_exit"),
    ("worker_abort", "worker_exit"),
    ("child_exit", "worker_exit"),
    ("on_exit", "worker_exit"),
    ("when_ready", "worker_ready"),
];

/// `post_fork=module:function`; the last dot does in place of a colon.
pub(crate) fn hook(text: &str) -> Result<Hook, Hint> {
    let Some((name, target)) = text.split_once('=') else {
        return hinted(format!("write `post_fork={text}`"));
    };
    let (name, target) = (name.trim(), target.trim());
    let known = HookMoment::ALL.into_iter().find(|one| one.name() == name);
    let moment = known.ok_or_else(|| unknown(name))?;
    let Some((module, function)) = target.split_once(':').or_else(|| target.rsplit_once('.'))
    else {
        return hinted(format!(
            "name the module too: `{name} = \"MODULE:{target}\"`"
        ));
    };
    if module.contains('/') {
        return hinted("name the module, not its file: `shop.hooks:post_fork`");
    }
    if let Some(function) = function.strip_suffix("()") {
        return hinted(format!("leave out the parentheses: `{module}:{function}`"));
    }
    match is_dotted_name(module) && is_dotted_name(function) {
        true => Ok(Hook {
            moment,
            module: module.to_owned(),
            function: function.to_owned(),
        }),
        false => Err(None),
    }
}

/// What to write in the place of a hook that does not exist.
fn unknown(name: &str) -> Hint {
    let of_gunicorn = OF_GUNICORN.iter().find(|(theirs, _)| *theirs == name);
    if let Some((_, ours)) = of_gunicorn {
        return Some(format!("the hook is called `{ours}`"));
    }
    let names = HookMoment::ALL.map(HookMoment::name);
    did_you_mean(name, names).or_else(|| {
        let names = names.map(|name| format!("`{name}`"));
        Some(format!("the hooks are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let said = match hook(text) {
            Ok(hook) => format!("{} {}", hook.key(), hook.target()),
            Err(hint) => hint.unwrap_or_default(),
        };
        assert_eq!(said, expect, "{text}");
    }

    #[test]
    fn takes_a_moment_and_a_dotted_name() {
        check("post_fork=shop:start", "hooks.post_fork shop:start");
        check("worker_exit = a.b:c.d", "hooks.worker_exit a.b:c.d");
        check("on_reload=shop.db.check", "hooks.on_reload shop.db:check");
        check("worker_ready=shop:a b", "");
        check("worker_ready=:a", "");
    }

    #[test]
    fn says_what_to_write_instead() {
        check("shop:start", "write `post_fork=shop:start`");
        check("post_frok=shop:start", "did you mean `post_fork`?");
        check("child_exit=a:b", "the hook is called `worker_exit`");
        check(
            "nworkers_changed=a:b",
            "the hooks are `post_fork`, `on_reload`, `worker_ready`, `worker_exit`",
        );
        check(
            "post_fork=start",
            "name the module too: `post_fork = \"MODULE:start\"`",
        );
        check("post_fork=a:b()", "leave out the parentheses: `a:b`");
        check(
            "post_fork=shop/hooks.py:f",
            "name the module, not its file: `shop.hooks:post_fork`",
        );
    }
}

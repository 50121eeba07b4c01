//! Settings of a Milepost server in all combinations.
//!
//! Takes texts as `drivers=1,2,10`, gives one server for each combination. Which settings there are is for
//! others to say.

use super::ServerSpec;
use crate::engine::Fault;

/// More servers are a mistake.
const SERVERS_MAX: usize = 100;

/// A setting and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// The setting's key, with `_`.
    pub key: String,
    /// At least one, none twice.
    pub values: Vec<String>,
}

impl Dimension {
    /// Of `drivers=1,2,10`.
    ///
    /// # Errors
    /// It has another form.
    pub fn parse(text: &str) -> Result<Dimension, Fault> {
        let fault = |cause: &str| {
            let text = format!("`--matrix {text}`: {cause}");
            Fault::with_hint(
                text,
                "a setting has its values behind it, as `--matrix drivers=1,2,10`",
            )
        };
        let (key, values) = text.split_once('=').ok_or_else(|| fault("it has no `=`"))?;
        let key = key.trim().trim_start_matches("--").replace('-', "_");
        let is_key =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        if key.is_empty() || !key.chars().all(is_key) {
            return Err(fault("before the `=` is no name of a setting"));
        }
        let values: Vec<String> = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        if values.iter().any(String::is_empty) {
            return Err(fault("a value is empty"));
        }
        let is_doubled = |index: usize| values[..index].contains(&values[index]);
        if let Some(index) = (0..values.len()).find(|index| is_doubled(*index)) {
            return Err(fault(&format!("`{}` is there twice", values[index])));
        }
        Ok(Dimension { key, values })
    }
}

/// One combination: its name, `drivers=1 processes=2`, and its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// Empty for none at all.
    pub name: String,
    /// `--drivers=1` and so on.
    pub flags: Vec<String>,
}

/// All combinations, the last dimension changing first; without dimensions the single empty one.
///
/// # Errors
/// A setting has two dimensions, or there are too many combinations.
pub fn combinations(dimensions: &[Dimension]) -> Result<Vec<Combination>, Fault> {
    for (index, dimension) in dimensions.iter().enumerate() {
        if dimensions[..index]
            .iter()
            .any(|other| other.key == dimension.key)
        {
            let text = format!("`--matrix {}`: it is given twice", dimension.key);
            return Err(Fault::with_hint(
                text,
                "give all its values at once, with commas",
            ));
        }
    }
    let lens = dimensions.iter().map(|dimension| dimension.values.len());
    let len = lens.fold(1, usize::saturating_mul);
    if len > SERVERS_MAX {
        let text = format!("`--matrix`: {len} combinations are more than {SERVERS_MAX}");
        return Err(Fault::with_hint(text, "give fewer values"));
    }
    let none = vec![Combination {
        name: String::new(),
        flags: Vec::new(),
    }];
    Ok(dimensions.iter().fold(none, |all, dimension| {
        let extended = all.iter().flat_map(|one| {
            dimension
                .values
                .iter()
                .map(|value| one.with(&dimension.key, value))
        });
        extended.collect()
    }))
}

impl Combination {
    fn with(&self, key: &str, value: &str) -> Combination {
        let name = format!("{} {key}={value}", self.name);
        // In one word: a switch takes its value in no other way.
        let flag = format!("--{}={value}", key.replace('_', "-"));
        let mut flags = self.flags.clone();
        flags.push(flag);
        Combination {
            name: name.trim_start().to_owned(),
            flags,
        }
    }
}

/// This program's own server with a combination of settings, `arguments` being those of `milepost serve`.
/// Its control socket is its own.
pub fn milepost(combination: &Combination, arguments: &[String]) -> ServerSpec {
    let mut start: Vec<String> = ["{milepost}", "serve", "--bind", "127.0.0.1:{port}"]
        .map(str::to_owned)
        .into();
    start.extend(["--control".to_owned(), "{folder}/control".to_owned()]);
    start.extend(arguments.iter().cloned());
    start.extend(combination.flags.iter().cloned());
    let name = match combination.name.as_str() {
        "" => "milepost",
        name => name,
    };
    ServerSpec {
        name: name.to_owned(),
        start,
        version: ["{milepost}", "version"].map(str::to_owned).into(),
        ..ServerSpec::default()
    }
}

/// Another server, of `NAME=COMMAND with {port}`.
///
/// # Errors
/// It has another form, or its words cannot be told apart.
pub fn other(text: &str) -> Result<ServerSpec, Fault> {
    let fault = |cause: &str| {
        let text = format!("`--start {text}`: {cause}");
        Fault::with_hint(
            text,
            "a name and a command, as `--start files='python3 -m http.server {port}'`; `{port}` is put in for it",
        )
    };
    let (name, command) = text.split_once('=').ok_or_else(|| fault("it has no `=`"))?;
    if name.trim().is_empty() {
        return Err(fault("before the `=` is no name"));
    }
    if !command.contains("{port}") {
        return Err(fault(
            "`{port}` is not in it: nothing tells the server its port",
        ));
    }
    let start = words(command).map_err(|cause| fault(&cause))?;
    Ok(ServerSpec {
        name: name.trim().to_owned(),
        start,
        ..ServerSpec::default()
    })
}

/// A command's words as a shell takes them apart: blanks, `'...'`, `"..."`, `\`. Nothing is expanded.
///
/// # Errors
/// A quotation has no end.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => quotation(letter, &mut letters, word.get_or_insert_default())?,
            '\\' => {
                let next = letters.next().ok_or("nothing is behind the last `\\`")?;
                word.get_or_insert_default().push(next);
            }
            letter if letter.is_whitespace() => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quotation(
    mark: char,
    letters: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), String> {
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter == mark => return Ok(()),
            '\\' if mark == '"' => {
                let next = letters.next();
                // As a shell does: elsewhere it is a letter like others.
                if !matches!(next, Some('"' | '\\' | '$' | '`')) {
                    word.push('\\');
                }
                word.extend(next);
            }
            letter => word.push(letter),
        }
    }
    Err(format!("a `{mark}` has no other one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension(text: &str) -> Dimension {
        Dimension::parse(text).expect("a dimension")
    }

    #[test]
    fn makes_every_combination() {
        let dimensions = [dimension("drivers=1,2"), dimension("--accept-batch=8,32")];
        let all = combinations(&dimensions).expect("combinations");
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let expect = [
            "drivers=1 accept_batch=8",
            "drivers=1 accept_batch=32",
            "drivers=2 accept_batch=8",
            "drivers=2 accept_batch=32",
        ];
        assert_eq!(names, expect);
        assert_eq!(all[1].flags, ["--drivers=1", "--accept-batch=32"]);
        let none = combinations(&[]).expect("combinations");
        assert_eq!(
            none,
            [Combination {
                name: String::new(),
                flags: Vec::new()
            }]
        );
    }

    #[test]
    fn starts_milepost_with_each_combination() {
        let all = combinations(&[dimension("drivers=2")]).expect("combinations");
        let spec = milepost(&all[0], &["shop:app".to_owned()]);
        assert_eq!(spec.name, "drivers=2");
        let expect = "{milepost} serve --bind 127.0.0.1:{port} --control {folder}/control shop:app --drivers=2";
        assert_eq!(spec.start.join(" "), expect);
        let none = combinations(&[]).expect("combinations");
        assert_eq!(milepost(&none[0], &[]).name, "milepost");
    }

    #[test]
    fn refuses_what_is_no_matrix() {
        for (text, expect) in [
            ("drivers", "it has no `=`"),
            ("=1", "before the `=` is no name of a setting"),
            ("Dri vers=1", "before the `=` is no name of a setting"),
            ("drivers=1,,2", "a value is empty"),
            ("drivers=", "a value is empty"),
            ("drivers=1,2,1", "`1` is there twice"),
        ] {
            let fault = Dimension::parse(text).expect_err("a fault");
            assert_eq!(fault.text, format!("`--matrix {text}`: {expect}"));
        }
        let fault = combinations(&[dimension("a=1"), dimension("a=2")]).expect_err("a fault");
        assert_eq!(fault.text, "`--matrix a`: it is given twice");
        let many = |key: &str| dimension(&format!("{key}=1,2,3,4,5,6,7,8,9,10,11"));
        let fault = combinations(&[many("a"), many("b")]).expect_err("a fault");
        assert_eq!(fault.text, "`--matrix`: 121 combinations are more than 100");
    }

    #[test]
    fn takes_other_servers_by_their_commands() {
        let spec = other("ng=nginx -p '{folder}/a b' -g \"listen {port};\"").expect("a server");
        assert_eq!(spec.name, "ng");
        assert_eq!(
            spec.start,
            ["nginx", "-p", "{folder}/a b", "-g", "listen {port};"]
        );
        for (text, expect) in [
            ("nginx {port}", "it has no `=`"),
            ("=nginx {port}", "before the `=` is no name"),
            (
                "a=nginx",
                "`{port}` is not in it: nothing tells the server its port",
            ),
            ("a=nginx 'x {port}", "a `'` has no other one"),
        ] {
            let fault = other(text).expect_err("a fault");
            assert_eq!(fault.text, format!("`--start {text}`: {expect}"));
        }
    }

    #[test]
    fn takes_words_apart_as_a_shell_does() {
        for (text, expect) in [
            ("", &[][..]),
            ("  a  b ", &["a", "b"]),
            (r#"a'b c'd "" '"'"#, &["ab cd", "", "\""]),
            (r#"a\ b "c\"d\n" '\'"#, &["a b", "c\"d\\n", "\\"]),
        ] {
            assert_eq!(words(text).expect("words"), expect, "{text}");
        }
        assert!(words("a\\").is_err() && words("\"a").is_err());
    }
}

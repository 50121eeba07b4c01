//! What is wrong as a page: light and dark, readable on a phone, with nothing from elsewhere.
//!
//! Takes texts, gives HTML. Every text from outside goes through `escaped`.

use super::MARK_NAME;
use config::failure::Failure;

/// Whether the page may ask again by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It was asked for by GET.
    Unasked,
    /// It is the answer to a form, for instance.
    Asked,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1d21;--dim:#666b75;--line:#e3e5ea;--box:#f6f7f9;--bad:#b3261e;--good:#146c2e;--bg:#fff}
@media(prefers-color-scheme:dark){:root{--fg:#e4e6eb;--dim:#9aa0ab;--line:#30343c;--box:#1d2026;--bad:#ff8a80;--good:#7fd896;--bg:#16181c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;border-top:4px solid var(--bad)}
main{max-width:72rem;margin:0 auto;padding:1.5rem 1rem 3rem}
header{color:var(--bad);font-weight:600}
h1{font-size:1.35rem;line-height:1.35;font-weight:600;margin:.4rem 0 1rem;overflow-wrap:anywhere}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace}
h1 code,p code{font-size:.92em;background:var(--box);border-radius:4px;padding:.08em .3em}
p{margin:0 0 1rem;overflow-wrap:anywhere}
pre{margin:0 0 1rem;padding:1rem;background:var(--box);border:1px solid var(--line);border-radius:8px;overflow-x:auto;font-size:.85rem;line-height:1.55;tab-size:4}
.l{color:var(--dim)}.a b{font-weight:600}.c{color:var(--bad)}.e{color:var(--bad);font-weight:600}
footer{color:var(--dim);font-size:.9rem}
footer.w{color:var(--good)}";

/// Asks for the head of this very page until the line with the mark is another one, or gone: then the code
/// has changed. A hidden tab does not ask.
const SCRIPT: &str = "\
const page=document.documentElement.dataset,foot=document.querySelector('footer');let timer;
async function look(){
clearTimeout(timer);
if(!document.hidden){try{
const reply=await fetch(location.href,{method:'HEAD',cache:'no-store',redirect:'manual'});
if(reply.headers.get(page.name)!==page.mark){
if(page.repeat==='unasked')return location.reload();
if(!reply.headers.has(page.name)){foot.className='w';foot.textContent='It works again. Load this page anew to send the form once more.';return}
}}catch{}}
timer=setTimeout(look,1000)}
document.addEventListener('visibilitychange',look);look()";

/// The whole page. Its `mark` is what the reply's own line says, as long as this is what is wrong; its `nonce` allows
/// the style and the script.
pub(super) fn render(wrong: &Failure, mark: &str, nonce: &str, repeat: Repeat) -> String {
    let mut out = String::with_capacity(8 << 10);
    let (repeat, promise) = match repeat {
        Repeat::Unasked => (
            "unasked",
            "this page loads anew by itself when the code has changed.",
        ),
        Repeat::Asked => ("asked", "this line tells when the code works again."),
    };
    out.push_str(&format!(
        "<!doctype html>\n<html lang=\"en\" data-name=\"{MARK_NAME}\" data-mark=\"{mark}\" \
         data-repeat=\"{repeat}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{}</title>\n\
         <style nonce=\"{nonce}\">\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n\
         <header>The application cannot be loaded</header>\n<h1>{}</h1>\n",
        escaped(&wrong.message.replace('`', "")),
        with_code(&wrong.message)
    ));
    if let Some(hint) = &wrong.hint {
        out.push_str(&format!("<p>Hint: {}</p>\n", with_code(hint)));
    }
    if let Some(detail) = &wrong.detail {
        out.push_str("<pre tabindex=\"0\" aria-label=\"Traceback\">");
        put_traceback(&mut out, detail.trim_end());
        out.push_str("</pre>\n");
    }
    out.push_str(&format!(
        "<footer role=\"status\">Milepost: {promise}</footer>\n\
         <script nonce=\"{nonce}\">\n{SCRIPT}\n</script>\n</main>\n</body>\n</html>\n"
    ));
    out
}

/// What Python says between frames and exceptions.
const PROSE: [&str; 3] = [
    "Traceback (most recent call last)",
    "During handling of the above exception",
    "The above exception was the direct cause",
];

/// Lines of a traceback: frames in libraries stand back, the exception stands out.
fn put_traceback(out: &mut String, traceback: &str) {
    let mut is_library = false;
    for line in traceback.lines() {
        let mut text = escaped(line);
        let path = path_of(line);
        // A frame has a line with its path, and indented lines of its code behind that.
        let class = if let Some(path) = path {
            is_library = is_in_library(path);
            if !is_library {
                // Looked for in the escaped line: a path with `<` in it stands there as `&lt;`.
                let path = escaped(path);
                text = text.replacen(&path, &format!("<b>{path}</b>"), 1);
            }
            if is_library { "l" } else { "a" }
        } else if line.is_empty() || line.starts_with([' ', '\t']) {
            let is_marks = !line.is_empty() && line.bytes().all(|byte| b" ^~".contains(&byte));
            match (is_library, is_marks) {
                (true, _) => "l",
                (false, true) => "c",
                (false, false) => "a",
            }
        } else {
            // An exception ends its frames; the next traceback begins with frames of its own.
            is_library = false;
            let is_prose = PROSE.iter().any(|prose| line.starts_with(prose));
            if is_prose { "l" } else { "e" }
        };
        out.push_str(&format!("<span class=\"{class}\">{text}</span>\n"));
    }
}

/// The path in `  File "path", line 3, in f`; members of a group of exceptions stand behind a bar.
fn path_of(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches([' ', '|', '+', '-']);
    let path = rest.strip_prefix("File \"")?;
    path.split_once("\", line ").map(|(path, _)| path)
}

/// Whether a frame is in code that the application only uses.
fn is_in_library(path: &str) -> bool {
    let places = [
        "/site-packages/",
        "/dist-packages/",
        "/lib/python3",
        "<frozen ",
    ];
    places.iter().any(|part| path.contains(part))
}

/// Text with what stands in backticks as code.
fn with_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut rest = text;
    while let Some((before, (code, after))) = rest
        .split_once('`')
        .and_then(|(before, behind)| Some((before, behind.split_once('`')?)))
    {
        out.push_str(&format!(
            "{}<code>{}</code>",
            escaped(before),
            escaped(code)
        ));
        rest = after;
    }
    out.push_str(&escaped(rest));
    out
}

/// Text that is text to a browser as well. Control characters have no place in a document.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            // An escape sequence that is copied into a terminal must do nothing there.
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(message: &str, hint: Option<&str>, detail: Option<&str>, repeat: Repeat) -> String {
        let wrong = Failure {
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
            detail: detail.map(str::to_owned),
        };
        render(&wrong, "m1", "n1", repeat)
    }

    #[track_caller]
    fn check_traceback(traceback: &str, expect: &str) {
        let mut out = String::new();
        put_traceback(&mut out, traceback);
        assert_eq!(out, expect);
    }

    #[test]
    fn no_text_from_outside_is_markup() {
        let attack = "</pre></h1></title><script>alert(1)</script>\" onload='x' & \0\u{1b}[31m";
        let text = page(attack, Some(attack), Some(attack), Repeat::Unasked);
        // Ours is the only one.
        assert_eq!(text.matches("<script").count(), 1);
        for tag in ["</pre>", "</h1>", "</title>", "</script>"] {
            assert_eq!(text.matches(tag).count(), 1, "{tag}");
        }
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39; &amp; \u{fffd}\u{fffd}[31m"));
        assert!(!text.contains(['\0', '\u{1b}']));
        // Nor is it within a path of a traceback.
        let text = page(
            "m",
            None,
            Some("  File \"<b>\", line 1, in <i>"),
            Repeat::Unasked,
        );
        assert!(text.contains("File &quot;<b>&lt;b&gt;</b>&quot;, line 1, in &lt;i&gt;"));
    }

    #[test]
    fn shows_values_as_code() {
        let check = |text: &str, expect: &str| assert_eq!(with_code(text), expect);
        check("`a:b`: no `c`", "<code>a:b</code>: no <code>c</code>");
        check("a ` b", "a ` b");
        check("`<`", "<code>&lt;</code>");
        check("", "");
    }

    #[test]
    fn frames_of_the_application_stand_out() {
        check_traceback(
            "Traceback (most recent call last):\n  File \"/srv/app.py\", line 3, in <module>\n    \
             import flask\n    ^^^^^^\n  File \"/v/lib/python3.11/site-packages/flask/x.py\", line 1, in f\n    \
             1/0\n    ~^~\nNameError: no\n\nDuring handling of the above exception, another exception occurred:",
            "<span class=\"l\">Traceback (most recent call last):</span>\n\
             <span class=\"a\">  File &quot;<b>/srv/app.py</b>&quot;, line 3, in &lt;module&gt;</span>\n\
             <span class=\"a\">    import flask</span>\n<span class=\"c\">    ^^^^^^</span>\n\
             <span class=\"l\">  File &quot;/v/lib/python3.11/site-packages/flask/x.py&quot;, line 1, in f</span>\n\
             <span class=\"l\">    1/0</span>\n<span class=\"l\">    ~^~</span>\n\
             <span class=\"e\">NameError: no</span>\n<span class=\"a\"></span>\n\
             <span class=\"l\">During handling of the above exception, another exception occurred:</span>\n",
        );
    }

    #[test]
    fn tells_paths_from_what_looks_like_them() {
        let check = |line: &str, expect: Option<&str>| assert_eq!(path_of(line), expect);
        check("  File \"/a b.py\", line 3, in f", Some("/a b.py"));
        check("  | File \"/a.py\", line 3", Some("/a.py"));
        check("    open(File \"x\")", None);
        check("  File \"/a.py\"", None);
        check("", None);
    }
}

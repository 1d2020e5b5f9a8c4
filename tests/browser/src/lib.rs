//! A headless Chromium, driven as a person drives it: by mouse, wheel and keys. And runs to show in it.

pub mod runs;

use fantoccini::actions::{
    InputSource, KeyAction, KeyActions, MouseActions, PointerAction, WheelAction, WheelActions,
};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use granule_report::{Comparison, Report};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where screenshots go; without it there is no browser to test with. Set by `cargo xtask browser`.
const FOLDER: &str = "GRANULE_BROWSER";
/// A laptop's screen.
pub const SCREEN: (u32, u32) = (1366, 768);
/// A folder with a page and texts of screens to take the book's pictures of, and the folder for these. Set by `cargo xtask browser --pictures`.
const BOOK: [&str; 2] = ["GRANULE_BROWSER_SHOWN", "GRANULE_BROWSER_BOOK"];
/// A line of a terminal, and the room around its text, in pixels.
const LINE: (u32, u32) = (18, 16);
/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser that shows a page.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    driver: Child,
    folder: PathBuf,
    page: PathBuf,
    home: TempDir,
}

/// Runs a test with a browser that shows the report; says why it did not where there is no browser.
///
/// # Panics
/// Where the test does, and where the browser cannot be driven.
pub fn with_report<T: Future<Output = ()>>(report: &Report<'_>, dark: bool, test: impl FnOnce(Browser) -> T) {
    with_page(|file| report.write(file), dark, test);
}

/// As [`with_report`], of a file's devices.
///
/// # Panics
/// As there.
pub fn with_reports<T: Future<Output = ()>>(devices: &[Report<'_>], test: impl FnOnce(Browser) -> T) {
    with_page(|file| granule_report::write(devices, file), false, test);
}

/// As [`with_report`], of several runs.
///
/// # Panics
/// As there.
pub fn with_comparison<T: Future<Output = ()>>(
    comparison: &Comparison<'_>,
    dark: bool,
    test: impl FnOnce(Browser) -> T,
) {
    with_page(|file| comparison.write(file), dark, test);
}

/// Keeps pictures for the book: of a page of the command's at each width, of a screen of this height, and of what commands print.
///
/// # Panics
/// Where there is nothing to show.
pub fn book(sizes: &[(u32, u32)]) {
    let [Some(shown), Some(folder)] = BOOK.map(std::env::var_os) else {
        eprintln!("skipped: `cargo xtask browser --pictures` runs this");
        return;
    };
    let shown = Path::new(&shown);
    let page = fs::read(shown.join("page.html")).expect("the command's page");
    with_page(
        |file| file.write_all(&page),
        false,
        |browser| async move {
            for (width, height) in sizes {
                browser.resize(*width, *height).await;
                browser.keep_for_the_book(&folder, &format!("page-{width}")).await;
            }
            for file in fs::read_dir(shown).expect("the texts").filter_map(Result::ok).map(|file| file.path())
            {
                if file.extension().is_some_and(|ending| ending == "txt") {
                    let text = fs::read_to_string(&file).expect("a text");
                    browser.terminal(&text).await;
                    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    browser.keep_for_the_book(&folder, &name).await;
                }
            }
            browser.end().await;
        },
    );
}

fn with_page<T: Future<Output = ()>>(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    dark: bool,
    test: impl FnOnce(Browser) -> T,
) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        eprintln!("skipped: `cargo xtask browser` runs this");
        return;
    };
    let home = TempDir::new().expect("a folder for the browser");
    let page = home.path().join("report.html");
    let mut file = BufWriter::new(File::create(&page).expect("a file for the page"));
    write(&mut file).and_then(|()| file.flush()).expect("the page");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let browser = Browser::open(&page, dark, folder, home).await;
        test(browser).await;
    });
}

impl Browser {
    async fn open(page: &Path, dark: bool, folder: PathBuf, home: TempDir) -> Self {
        fs::create_dir_all(&folder).expect("a folder for screenshots");
        let (driver, port) = start_driver();
        let profile = format!("--user-data-dir={}", home.path().join("profile").display());
        let mut options = json!({ "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", profile,
        ]});
        if let Ok(binary) = std::env::var("GRANULE_CHROMIUM") {
            options["binary"] = binary.into();
        }
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let Value::Object(wanted) = wanted else { unreachable!("it is an object") };
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let client = ClientBuilder::new(connector)
            .capabilities(wanted)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser session");
        let browser = Self { client, driver, folder, page: page.to_owned(), home };
        browser.size(SCREEN.0, SCREEN.1).await;
        let scheme =
            json!([{ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } }]);
        browser.devtools("Emulation.setEmulatedMedia", json!({ "features": scheme })).await;
        // The page that a browser opens by itself has requests and complaints of its own.
        browser.client.goto("about:blank").await.expect("an empty page");
        browser.log("performance").await;
        browser.log("browser").await;
        browser.visit("").await;
        browser
    }

    async fn visit(&self, link: &str) {
        self.client.goto(&format!("file://{}{link}", self.page.display())).await.expect("the page opens");
        self.until("window.granule?.ready").await;
    }

    /// Opens the page anew by a link: what follows the file's name in its address.
    pub async fn open_link(&self, link: &str) {
        // Without this the browser only goes to another part of the same page.
        self.client.goto("about:blank").await.expect("an empty page");
        self.visit(link).await;
        self.settle().await;
    }

    /// Presses the browser's button for the page before.
    pub async fn back(&self) {
        self.client.back().await.expect("back");
        self.settle().await;
    }

    /// Presses the browser's button for the page after.
    pub async fn forward(&self) {
        self.client.forward().await.expect("forward");
        self.settle().await;
    }

    /// The file that the reader gets when the button is pressed that a selector names, with its name.
    pub async fn download(&self, selector: &str) -> (String, Vec<u8>) {
        let folder = self.home.path().join("downloads");
        fs::create_dir_all(&folder).expect("a folder for downloads");
        self.devtools("Browser.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": folder }))
            .await;
        self.click(selector).await;
        let begin = Instant::now();
        loop {
            let files = fs::read_dir(&folder).expect("downloads").filter_map(Result::ok);
            // One that is not whole yet has another name, or is empty: the browser takes a name before it writes.
            let whole = files.map(|file| file.path()).find_map(|file| {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let named = !name.starts_with('.') && !name.ends_with(".crdownload");
                let content = if named { fs::read(&file).ok() } else { None };
                content.filter(|content| !content.is_empty()).map(|content| (file, content))
            });
            if let Some((file, content)) = whole {
                fs::remove_file(&file).expect("the file goes");
                return (file.file_name().unwrap_or_default().to_string_lossy().into_owned(), content);
            }
            assert!(begin.elapsed() < PATIENCE, "{selector} gave no file");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn size(&self, width: u32, height: u32) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Gives the page another screen.
    pub async fn resize(&self, width: u32, height: u32) {
        self.size(width, height).await;
        self.settle().await;
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        let body = json!({ "cmd": command, "params": parameters });
        self.client.issue_cmd(Vendor { path: "goog/cdp/execute", body }).await.expect(command);
    }

    /// What an expression of the page's language is worth.
    pub async fn get(&self, expression: &str) -> Value {
        self.client.execute(&format!("return ({expression});"), Vec::new()).await.expect(expression)
    }

    /// A number.
    pub async fn number(&self, expression: &str) -> f64 {
        self.get(expression).await.as_f64().unwrap_or_else(|| panic!("{expression} is no number"))
    }

    /// A text.
    pub async fn text(&self, expression: &str) -> String {
        let value = self.get(expression).await;
        value.as_str().unwrap_or_else(|| panic!("{expression} is no text: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    pub async fn until(&self, expression: &str) {
        let begin = Instant::now();
        while self.get(&format!("Boolean({expression})")).await != Value::Bool(true) {
            let state = self.get("window.granule").await;
            assert!(begin.elapsed() < PATIENCE, "never became true: {expression}; {state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until what was asked for is drawn.
    pub async fn settle(&self) {
        let frames =
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));";
        self.client.execute_async(frames, Vec::new()).await.expect("frames");
        self.until("window.granule.current").await;
    }

    /// Presses a key.
    pub async fn key(&self, key: char) {
        let keys = KeyActions::new("keys".into());
        self.act(keys.then(KeyAction::Down { value: key }).then(KeyAction::Up { value: key })).await;
        self.settle().await;
    }

    /// Types a text where the focus is.
    pub async fn write(&self, text: &str) {
        for key in text.chars() {
            let keys = KeyActions::new("keys".into());
            self.act(keys.then(KeyAction::Down { value: key }).then(KeyAction::Up { value: key })).await;
        }
    }

    /// Moves the mouse.
    pub async fn point(&self, (x, y): (f64, f64)) {
        self.act(MouseActions::new("mouse".into()).then(PointerAction::MoveTo { duration: None, x, y }))
            .await;
        self.settle().await;
    }

    /// Presses the mouse's button at a point.
    pub async fn click_at(&self, (x, y): (f64, f64)) {
        let mouse = MouseActions::new("mouse".into())
            .then(PointerAction::MoveTo { duration: None, x, y })
            .then(PointerAction::Down { button: 0 })
            .then(PointerAction::Up { button: 0 });
        self.act(mouse).await;
        self.settle().await;
    }

    /// Presses the mouse's button on the element that a selector names.
    pub async fn click(&self, selector: &str) {
        self.click_at(self.middle(selector).await).await;
    }

    /// Drags from a point by so much.
    pub async fn drag(&self, (x, y): (f64, f64), by: (f64, f64)) {
        let step = Some(Duration::from_millis(50));
        let mouse = MouseActions::new("mouse".into())
            .then(PointerAction::MoveTo { duration: None, x, y })
            .then(PointerAction::Down { button: 0 })
            .then(PointerAction::MoveTo { duration: step, x: x + by.0 / 2.0, y: y + by.1 / 2.0 })
            .then(PointerAction::MoveTo { duration: step, x: x + by.0, y: y + by.1 })
            .then(PointerAction::Up { button: 0 });
        self.act(mouse).await;
        self.settle().await;
    }

    /// Turns the wheel at a point; negative is away from the person.
    #[allow(clippy::cast_possible_truncation)]
    pub async fn wheel(&self, (x, y): (f64, f64), delta_y: i64) {
        let (x, y) = (x as i64, y as i64);
        let turn = WheelAction::Scroll { duration: None, x, y, delta_x: 0, delta_y };
        let mut wheel = WheelActions::new("wheel".into());
        wheel.push(turn);
        self.client.perform_actions(wheel).await.expect("the wheel turns");
        self.settle().await;
    }

    async fn act(&self, actions: impl Into<fantoccini::actions::ActionSequence>) {
        let actions: fantoccini::actions::ActionSequence = actions.into();
        self.client.perform_actions(actions).await.expect("mouse and keys work");
    }

    /// The middle of an element.
    pub async fn middle(&self, selector: &str) -> (f64, f64) {
        let of = format!("document.querySelector({}).getBoundingClientRect()", json!(selector));
        (
            self.number(&format!("{of}.left + {of}.width / 2")).await,
            self.number(&format!("{of}.top + {of}.height / 2")).await,
        )
    }

    /// A point of a canvas at which the words beside the pointer begin with these.
    pub async fn find(&self, canvas: &str, words: &str) -> Option<(f64, f64)> {
        let search = format!(
            "(() => {{
               const [canvas, tip] = [document.querySelector({}), document.querySelector('#tip')];
               const box = canvas.getBoundingClientRect();
               for (let y = box.height - 26; y > 6; y -= 7) {{
                 for (let x = 80; x < box.width - 28; x += 9) {{
                   const at = {{ clientX: box.left + x, clientY: box.top + y, bubbles: true }};
                   canvas.dispatchEvent(new PointerEvent('pointermove', at));
                   if (!tip.hidden && tip.textContent.startsWith({})) return [at.clientX + 6, at.clientY];
                 }}
               }}
               return null;
             }})()",
            json!(canvas),
            json!(words)
        );
        let found = self.get(&search).await;
        Some((found.get(0)?.as_f64()?, found.get(1)?.as_f64()?))
    }

    /// Shows a text as a terminal does, in the place of the page.
    async fn terminal(&self, text: &str) {
        let look = format!(
            "margin: 0; padding: {}px; font: 14px/{}px monospace; color: #ddd; background: #1e1e1e",
            LINE.1, LINE.0
        );
        let (text, look) = (Value::from(text), Value::from(look));
        self.client.goto("about:blank").await.expect("an empty page");
        self.get(&format!(
            "(document.body.style = 'margin: 0; background: #1e1e1e',
              document.body.append(Object.assign(document.createElement('pre'), {{ textContent: {text}, style: {look} }})), 1)"
        ))
        .await;
        // The text is as wide as it is, and not as the window.
        let wide = self
            .number("(() => { const all = new Range(); all.selectNodeContents(document.querySelector('pre')); return Math.ceil(all.getBoundingClientRect().width); })()")
            .await;
        let lines = text.as_str().map_or(0, |text| text.lines().count() as u32);
        self.size(wide as u32 + 2 * LINE.1, lines * LINE.0 + 2 * LINE.1).await;
    }

    async fn keep_for_the_book(&self, folder: &std::ffi::OsStr, name: &str) {
        let picture = self.client.screenshot().await.expect("a screenshot");
        let file = Path::new(folder).join(format!("{name}.png"));
        fs::write(&file, picture).expect("the picture's file");
        println!("{}", file.display());
    }

    /// Keeps a picture of the page.
    pub async fn picture(&self, name: &str) {
        self.keep(name, &self.client.screenshot().await.expect("a screenshot"));
    }

    /// Keeps a picture that the page has made.
    pub fn keep(&self, name: &str, picture: &[u8]) {
        let file = self.folder.join(format!("{name}.png"));
        fs::write(&file, picture).expect("the picture's file");
        println!("{}", file.display());
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        let lines = self.client.issue_cmd(Vendor { path: "se/log", body: json!({ "type": kind }) }).await;
        lines.expect("the browser's log").as_array().cloned().unwrap_or_default()
    }

    /// Ends the browser. Nothing was asked of the network, and nothing was complained about.
    ///
    /// # Panics
    /// If it was.
    pub async fn end(mut self) {
        let complaints: Vec<_> =
            self.log("browser").await.into_iter().filter(|line| line["level"] != "INFO").collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        for line in self.log("performance").await {
            let text = line["message"].as_str().unwrap_or_default();
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = message["message"]["params"]["request"]["url"].as_str().unwrap_or_default();
                let own = ["file:", "data:", "blob:"].iter().any(|scheme| url.starts_with(scheme));
                assert!(own, "the page asked for {url}");
            }
        }
        let _ = self.client.clone().close().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Drop for Browser {
    /// Also where a test failed: the driver takes the browser with it.
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts the driver on a port of its choice. It ends where another program has that port on the other protocol, IPv4 or
/// IPv6; the next try gets another port.
fn start_driver() -> (Child, u16) {
    (0..3).find_map(|_| try_driver()).expect("chromedriver says its port")
}

fn try_driver() -> Option<(Child, u16)> {
    let program = std::env::var_os("GRANULE_CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
    let mut driver = Command::new(program)
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts");
    let said = BufReader::new(driver.stdout.take().expect("its output"));
    let port = said
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok());
    let Some(port) = port else {
        driver.kill().expect("a driver without a port ends");
        driver.wait().expect("a driver without a port ends");
        return None;
    };
    Some((driver, port))
}

/// A command that only Chromium has.
#[derive(Debug)]
struct Vendor {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Vendor {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

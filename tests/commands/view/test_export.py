"""The one file: nothing from outside, everything that was kept, and a bound that says what it left out."""

import base64
import hashlib
import json
import re
import zlib

from restrain_openrlhf.commands.view.page import export
from restrain_openrlhf.commands.view.source import material
from tests.commands.view.runs import boxed, scored_group, small_run, write_run

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


def exported(run, megabytes=50):
    out = run / "view.html"
    return export(material(run, None), out, megabytes), out.read_text(encoding="utf-8")


def block(page, name):
    return re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)[1]


def unpacked(text):
    return json.loads(zlib.decompress(base64.b64decode(text)))


def test_the_file_has_every_group_with_its_responses(tmp_path):
    made, page = exported(small_run(tmp_path))
    assert made == (9, 9, [])
    summaries, opened = unpacked(block(page, "summaries")), json.loads(block(page, "details"))
    assert len(summaries["groups"]) == 9
    assert summaries["next"] is None
    assert unpacked(opened["0/1/0"])["classes"][0]["rollouts"][0]["response"] == "so \\(x = \\boxed{4}\\)"


def test_the_file_names_no_other_file(tmp_path):
    _, page = exported(small_run(tmp_path))
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'<\w+[^>]*(?:src|href)="(?!data:,")[^"]*"', markup) == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert len(re.findall(r"url\(data:font/woff2", styles)) == 20
    assert re.findall(r"url\((?!data:)", styles) == []


def test_its_policy_lets_in_exactly_its_scripts_and_styles(tmp_path):
    _, page = exported(small_run(tmp_path))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        digests = [
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        ]
        assert re.search(rf"{tag}-src ([^;]*)", policy)[1] == " ".join(f"'sha256-{each}'" for each in digests)


def test_text_of_rollouts_is_nowhere_in_the_markup(tmp_path):
    run = write_run(tmp_path / HOSTILE.replace("/", "∕"), [scored_group(1, 0, HOSTILE, [HOSTILE, *boxed(HOSTILE)])])
    _, page = exported(run)
    assert "alert(1)</script>" not in page
    assert "onerror=alert" not in page.replace("&lt;img src=x onerror=alert(2)&gt;", "")
    assert page.count("<script") == page.count("</script>")


def test_a_bound_leaves_the_votes_and_says_so(tmp_path):
    noise = [hashlib.sha256(str(at).encode()).hexdigest() * 700 for at in range(60)]
    groups = [scored_group(1, at, f"prompt {at}", [text[at:] + "\\boxed{1}"]) for at, text in enumerate(noise)]
    huge = [
        scored_group(
            2, at, f"prompt {at}", ["".join(hashlib.sha256(f"{at} {n}".encode()).hexdigest() for n in range(900))]
        )
        for at in range(60)
    ]
    (count, with_responses, _), page = exported(write_run(tmp_path, [*groups, *huge]), megabytes=1)
    assert count == 120
    assert 0 < with_responses < 120
    assert with_responses % 2 == 0
    assert (tmp_path / "view.html").stat().st_size < 3 << 20
    assert f"it has the responses of {with_responses:,} of 120 groups" in page
    assert len(unpacked(block(page, "summaries"))["groups"]) == 120

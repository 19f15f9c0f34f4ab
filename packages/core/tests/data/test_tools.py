import json

import pytest
from rl_core.data.tools import configured_tools, row_tools, tool_name
from rl_core.errors import ConfigError, DataError

CALC = {"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}
FUNCTIONS = '''
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one.
        b: the other.
    """
    return a + b


def raw():
    pass


raw.tool_schema = {"name": "raw", "description": "given"}


def _hidden():
    pass
'''


def test_schemas_of_a_file_and_of_functions(tmp_path):
    (tmp_path / "t.yaml").write_text(json.dumps({"tools": [{"class_name": "x.Calc", "tool_schema": CALC}]}))
    (tmp_path / "f.py").write_text(FUNCTIONS)
    found = configured_tools(str(tmp_path / "t.yaml"), str(tmp_path / "f.py"))
    assert [tool_name(schema) for schema in found] == ["calc", "add", "raw"]
    assert found[0] == CALC
    assert found[1]["function"]["parameters"]["properties"]["a"] == {"type": "integer", "description": "one."}
    assert configured_tools(None, None) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tools: 3", "must hold a list under 'tools'"),
        ("tools: [{class_name: a.B}]", "entry 0 has no schema with a name"),
        ("a: b: c", "is not YAML"),
        (json.dumps([CALC, CALC]), "tools calc are defined twice"),
    ],
)
def test_files_that_define_no_tools(tmp_path, text, message):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        configured_tools(str(tmp_path / "t.yaml"), None)


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.tool_config_path is nowhere\.yaml: no such file"):
        configured_tools("nowhere.yaml", None)
    with pytest.raises(ConfigError, match=r"data\.function_tool_path is nowhere\.py: no such file"):
        configured_tools(None, "nowhere.py")
    (tmp_path / "f.py").write_text("def add(a, b):\n    return a\n")
    with pytest.raises(ConfigError, match="add cannot be described as a tool"):
        configured_tools(None, str(tmp_path / "f.py"))
    (tmp_path / "f.py").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="has no public function"):
        configured_tools(None, str(tmp_path / "f.py"))


def test_broken_tools_of_a_row():
    with pytest.raises(DataError, match=r"row 4: extra_info\.tool_selection names 'web'; the tools .* are calc"):
        row_tools(4, {"extra_info": {"tool_selection": ["web"]}}, [CALC])
    with pytest.raises(DataError, match="row 4: tools must be schemas with a name"):
        row_tools(4, {"tools": [{"description": "x"}]}, [])
    with pytest.raises(DataError, match="row 4: tools is a text that is not valid JSON"):
        row_tools(4, {"tools": "{"}, [])

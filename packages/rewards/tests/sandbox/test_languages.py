import os

from rl_rewards.sandbox.languages import Language, find, folders_of, interpreter


def test_the_interpreter_is_a_real_file():
    assert os.path.isfile(interpreter()) and not os.path.islink(interpreter())


def test_folders_within_others_are_left_out(tmp_path):
    inner, outer = tmp_path / "a" / "b", tmp_path / "a"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(inner)
    folders = folders_of(
        Language(file_name="x", command=("x",), folders=lambda: (str(inner), str(outer), str(link), "/no/such"))
    )
    assert str(outer) in folders and str(inner) not in folders and "/no/such" not in folders
    assert str(link) in folders


def test_python_reads_its_own_installation_and_no_home():
    folders = folders_of(find("python"))
    assert interpreter() in folders
    library = os.path.realpath(os.path.dirname(os.__file__))
    assert any(library.startswith(folder) for folder in folders)
    for private in (os.path.expanduser("~"), "/etc", "/", "/tmp", "/usr"):
        assert private not in folders

"""{{cookiecutter.description}}"""
